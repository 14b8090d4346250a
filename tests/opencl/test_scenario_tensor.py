"""scenario_tensor.cl, function by function, by one warp against NumPy.

`encode` by whole rollouts: rollout/test_scenario_tensor.py.
"""

import numpy as np
import pytest

from backtest.agent.scenario_layout import CALENDAR
from backtest.agent.scenario_weights import attend, softmax, task_context
from backtest.market.layout import N_PORTFOLIO
from opencl.programs import Program
from opencl.rollout.operands import NEURON, bf16
from opencl.rollout.packing import pack
from opencl.rollout.sizes import Sizes
from opencl.tensor_probe import has_tensor_cores
from tests.opencl import emulation
from tests.opencl.rollout.scene import NETWORK, Scene, shape_of
from tests.opencl.wrapping import evaluate

F32, I32 = np.float32, np.int32
FILES = (
    *("rollout.cl", "tensor.cl", "layers_tensor.cl", "queries_group.cl", "skill_score.cl"),
    *("task_guess.cl", "task_group.cl", "scenario_tensor.cl"),
)
LANE = np.arange(32)
# rows and columns of a C tile's four floats, by lane
ROWS = (LANE // 4)[:, None] + np.array([0, 0, 8, 8])
COLUMNS = (LANE % 4 * 2)[:, None] + np.array([0, 1, 0, 1])
WRAPPERS = """
__kernel WARP void test_turn_8x8(__global const uint *x, __global uint *out)
{
    out[get_global_id(0)] = turn_8x8(x[get_global_id(0)]);
}

__kernel WARP void test_share_tiles(__global const float4 *s, __global const float2 *weight,
                                    __global float4 *share, __global float2 *whole,
                                    __global uint4 *packed)
{
    const int lane = get_local_id(0);
    float4 s0 = s[lane];
    float4 s1 = s[32 + lane];
    whole[lane] = share_tiles(&s0, &s1, weight[lane]);
    share[lane] = s0;
    share[32 + lane] = s1;
    packed[lane] = operand(s0, s1);
}

// 16 episodes on a row each; C tiles of their queries to all scenarios.
__kernel WARP void test_queries(__global const float *query, __global const float *table,
                                __global const float *portfolio, __global const float *shift,
                                __global const int *slot, __global float4 *out)
{
    __local float f[N_PORTFOLIO * ROW];
    const int lane = get_local_id(0);
    for (int i = lane; i < 16 * N_PORTFOLIO; i += 32) {
        f[i % N_PORTFOLIO * ROW + i / N_PORTFOLIO] = portfolio[i];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    Policy p;
    p.query = query;
    p.shift = shift;
    const int e = lane / 4;
    const uint4 inputs[2] = {query_inputs(f + e, BALANCE_MASK), query_inputs(f + e, POSITION_MASK)};
    for (int s = 0; s < SCENARIOS; s++) {
        float4 c0[3], c1[3];
        for (int q = 0; q < 3; q++) {
            __global const float *row = table + e * BAR_ROW;
            query_tiles(&p, inputs, row, row + 8 * BAR_ROW, q, s, c0 + q, c1 + q);
        }
        shift_tiles(&p, slot[e], slot[e + 8], s, c0, c1);
        for (int q = 0; q < 3; q++) {
            out[((q * SCENARIOS + s) * 2) * 32 + lane] = c0[q];
            out[((q * SCENARIOS + s) * 2 + 1) * 32 + lane] = c1[q];
        }
    }
}

__kernel WARP void test_encode_tile(__global const float *query, __global const float *table,
                                    __global const float *portfolio, __global const float *w1,
                                    __global const float *b1, __global const int *places,
                                    __global float4 *out)
{
    __local float f[N_PORTFOLIO * ROW];
    __local int place[16], slot[16];
    const int lane = get_local_id(0);
    for (int i = lane; i < 16 * N_PORTFOLIO; i += 32) {
        f[i % N_PORTFOLIO * ROW + i / N_PORTFOLIO] = portfolio[i];
    }
    if (lane < 16) {
        place[lane] = places[lane];
        slot[lane] = MISS;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    Policy p;
    p.query = query;
    p.table = table;
    p.w1 = w1;
    p.b1 = b1;
    float4 sum[HIDDEN1 / 8];
    encode_tile(&p, place, f, 1, slot, 0, 0, sum); // step 1: one row further
    for (int n = 0; n < HIDDEN1 / 8; n++) {
        out[n * 32 + lane] = sum[n];
    }
}
"""


@pytest.fixture(scope="module", params=emulation.DEVICES, ids=lambda device: device.platform[:6])
def warp(request):
    """Compile the wrappers for a scenario network, for one warp of 16 episodes."""
    device, attribute, made = request.param, "", {}
    with pytest.MonkeyPatch.context() as patch:
        if not has_tensor_cores(device):
            patch.setattr("opencl.programs.read", emulation.emulated)
            attribute = emulation.WARP

        def compile_(horizon, latent):
            if (horizon, latent) not in made:
                sizes = Sizes(shape_of(network(horizon, latent)), True, 2**16, "", True, tile=16)
                text = WRAPPERS.replace("WARP void", f"{attribute} void")
                program = Program(device, FILES, sizes.defines() | {"PARTS": 1}, text)
                made[horizon, latent] = sizes, program
            return made[horizon, latent]

        yield compile_


def network(horizon, latent):
    return NETWORK.model_copy(update={"hidden": (32, 32), "horizon": horizon, "latent": latent})


def unpacked(words):
    """Two bf16 of each word as float32, the low half first."""
    return np.stack([words << 16, words & np.uint32(0xFFFF0000)], axis=-1).view(F32)


def test_turn_8x8(warp):
    _, program = warp(12, 16)
    matrix = np.arange(64, dtype=F32).reshape(8, 8)  # bf16 holds them
    halves = bf16(matrix).astype(np.uint32)
    words = (halves[:, ::2] | halves[:, 1::2] << 16).ravel()  # lane 4*row + pair
    (out,) = evaluate(program, "test_turn_8x8", 32, words, out=[np.empty(32, np.uint32)], group=32)
    np.testing.assert_array_equal(unpacked(out).reshape(8, 8), matrix.T)


@pytest.mark.parametrize("horizon, latent", [(12, 16), (6, 8), (3, 16)])
def test_shares_of_a_row(warp, horizon, latent):
    """share_tiles, with over_row, top_of_row and exp2_tile; operand."""
    _, program = warp(horizon, latent)
    draw = np.random.default_rng(horizon)
    scores, weight = draw.normal(0, 3, (16, 16)).astype(F32), draw.random(16).astype(F32)
    scores[:, horizon:] = np.nan  # padding says nothing
    tiles = np.stack([scores[ROWS, COLUMNS], scores[ROWS, COLUMNS + 8]])
    weights = weight[np.stack([LANE // 4, LANE // 4 + 8], axis=1)]
    share, whole, packed = evaluate(
        program, "test_share_tiles", 32, tiles, weights,
        out=[np.empty((2, 32, 4), F32), np.empty((32, 2), F32), np.empty((32, 4), np.uint32)],
        group=32,
    )  # fmt: skip
    seen = np.empty((16, 16), F32)
    seen[ROWS, COLUMNS], seen[ROWS, COLUMNS + 8] = share
    wanted = softmax(scores[:, :horizon] * F32(np.log(2))) * weight[:, None]
    factor = np.empty(16, F32)
    factor[LANE // 4], factor[LANE // 4 + 8] = whole.T
    np.testing.assert_allclose(seen[:, :horizon] * factor[:, None], wanted, rtol=1e-4)
    assert (seen[:, horizon:] == 0).all()
    # A operand: rows and columns as tensor.cl says
    pairs = unpacked(packed)  # [lane][word][half]
    for word, (row, column) in enumerate(((0, 0), (8, 0), (0, 8), (8, 8))):
        place = LANE // 4 + row, LANE % 4 * 2 + column
        np.testing.assert_allclose(pairs[:, word, 0], seen[place], rtol=2**-8)
        np.testing.assert_allclose(pairs[:, word, 1], seen[place[0], place[1] + 1], rtol=2**-8)


def table_of(scene, sizes, w, n):
    """Rows of a table without tokens: calendar queries of the first n bars."""
    table = np.zeros((n, sizes.bar_row), F32)
    calendar = scene.x[:n][:, list(CALENDAR)] @ w.Wq_calendar.T + w.bq_calendar
    table[:, sizes.calendar_at : sizes.share_at] = calendar
    return table


@pytest.mark.parametrize("horizon, latent", [(12, 16), (6, 8)])
def test_queries_are_float32(warp, horizon, latent):
    """query_input, query_inputs, pairs, query_tiles, shift_tiles."""
    sizes, program = warp(horizon, latent)
    scene = Scene(network(horizon, latent))
    w, draw = scene.weights[0], np.random.default_rng(latent)
    portfolio = draw.normal(0, 1, (16, N_PORTFOLIO)).astype(F32)
    shift = draw.normal(0, 1, (2, sizes.task_row)).astype(F32)
    slot = draw.integers(-2, 2, 16).astype(I32)
    dim, s = 3 * w.scenarios * latent, w.scenarios
    (tiles,) = evaluate(
        program, "test_queries", 32, pack(sizes, [w])["query"][0], table_of(scene, sizes, w, 16),
        portfolio, shift, slot, out=[np.empty((3 * s, 2, 32, 4), F32)], group=32,
    )  # fmt: skip
    seen = np.empty((3 * s, 16, 16), F32)
    seen[:, ROWS, COLUMNS], seen[:, ROWS, COLUMNS + 8] = tiles[:, 0], tiles[:, 1]
    wanted = task_context(w, scene.x[:16], portfolio)
    wanted = np.where((slot >= 0)[:, None], wanted + shift[np.maximum(slot, 0), :dim], wanted)
    wanted = wanted.reshape(16, 3 * s, latent).swapaxes(0, 1)
    np.testing.assert_allclose(seen[..., :latent], wanted, atol=1e-4)
    assert not seen[..., latent:].any()


@pytest.mark.parametrize("horizon, latent", [(12, 16), (6, 8)])
@pytest.mark.parametrize("shared", [True, False])
def test_encode_tile(warp, horizon, latent, shared):
    """encode_tile and add_scenario, with a bar each and with runs of episodes on one bar."""
    sizes, program = warp(horizon, latent)
    scene = Scene(network(horizon, latent))
    w, draw, s = scene.weights[0], np.random.default_rng(latent), NETWORK.scenarios
    portfolio = draw.normal(0, 1, (16, N_PORTFOLIO)).astype(F32)
    tokens, weight = draw.normal(0, 1, (18, s, horizon, latent)), draw.random((18, s)).astype(F32)
    wide = np.zeros((18, s, 16, 16), F32)
    wide[:, :, :horizon, :latent] = tokens
    halves = bf16(wide).astype(np.uint32).reshape(18, s, 2, 8, 2, 4, 2)  # token, latent
    words = halves[..., 0] | halves[..., 1] << 16
    table = table_of(scene, sizes, w, 18)
    table[:, sizes.share_at : sizes.input_at] = weight
    table[:, sizes.tokens_at :] = words.transpose(0, 1, 3, 5, 2, 4).reshape(18, -1).view(F32)
    place = np.repeat([3, 9, 0, 9], [5, 1, 7, 3]) if shared else draw.permutation(16)
    packed = pack(sizes, [w])
    (tiles,) = evaluate(
        program, "test_encode_tile", 32, packed["query"][0], table, portfolio, packed["w1"][0],
        packed["b1"][0], place.astype(I32), out=[np.empty((4, 32, 4), F32)], group=32,
    )  # fmt: skip
    seen = np.empty((16, 32), F32)
    for block in range(4):
        column = 8 * block + COLUMNS
        seen[ROWS, column // 16 * 16 + NEURON[column % 16]] = tiles[block]
    row = place + 1
    context = task_context(w, scene.x[row], portfolio)
    rounded = (bf16(wide).astype(np.uint32) << 16).view(F32)[row, :, :horizon, :latent]
    wanted = attend(w, context, rounded, weight[row]) @ w.W1.T + w.b1
    np.testing.assert_allclose(seen, wanted, atol=2e-2 * np.abs(wanted).max())
