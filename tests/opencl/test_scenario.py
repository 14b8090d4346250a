"""queries_*.cl and scenario_*.cl of both kernels, function by function against NumPy.

`encode` of all kinds is tested by whole rollouts: test_rollout.py and rollout/test_scenario.py.
"""

import numpy as np
import pytest

from backtest.agent.scenario_layout import BALANCE, CALENDAR, POSITION
from backtest.agent.scenario_weights import attend, softmax, task_context
from backtest.market.layout import N_PORTFOLIO
from opencl.rollout.packing import pack
from opencl.rollout.sizes import Sizes
from tests.opencl.rollout.scene import NETWORK, Scene, shape_of
from tests.opencl.wrapping import evaluate

F32, I32 = np.float32, np.int32
S, H, L, N = NETWORK.scenarios, NETWORK.horizon, NETWORK.latent, 16
DIM = 3 * S * L
LANES = """
__kernel void test_gather(__global const float *rows, const int at, const int n,
                          __global float *out)
{
    __global const float *row[LANES];
    for (int i = 0; i < LANES; i++) {
        row[i] = rows + 40 * i;
    }
    lanes_t mine[40];
    gather(row, at, n, mine);
    for (int k = 0; k < n; k++) {
        vstore16(mine[k], k, out);
    }
}

__kernel void test_task_context(__global const float *query, __global const float *table,
                                __global const float *portfolio, __global float *out)
{
    Policy p;
    p.query = query;
    __global const float *row[LANES];
    lanes_t f[N_PORTFOLIO], context[TASK_ROW];
    for (int i = 0; i < LANES; i++) {
        row[i] = table + i * BAR_ROW;
    }
    for (int k = 0; k < N_PORTFOLIO; k++) {
        f[k] = vload16(k, portfolio);
    }
    task_context(&p, row, f, context);
    for (int e = 0; e < TASK_DIM; e++) {
        vstore16(context[e], e, out);
    }
    vstore16(project_lanes(query, f, BALANCE_MASK), TASK_DIM, out);
}

__kernel void test_attend(__global const float *query, __global const float *tokens,
                          __global const float *weight, __global float *out, __global float *shares)
{
    lanes_t q[LATENT], token[HORIZON * LATENT], seen[LATENT], score[HORIZON];
    for (int k = 0; k < HORIZON * LATENT; k++) {
        token[k] = vload16(k, tokens);
    }
    for (int l = 0; l < LATENT; l++) {
        q[l] = vload16(l, query);
    }
    attend_lanes(q, token, vload16(0, weight), seen);
    for (int l = 0; l < LATENT; l++) {
        vstore16(seen[l], l, out);
    }
    for (int h = 0; h < HORIZON; h++) {
        score[h] = token[h * LATENT];
    }
    const lanes_t den = share_lanes(score);
    for (int h = 0; h < HORIZON; h++) {
        vstore16(score[h] / den, h, shares);
    }
}
"""
GROUP = """
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void test_attend(
    __global const float *query, __global const float *table, __global const float *portfolio,
    __global const float *shift, __global float *context, __global float *seen,
    __global float *shares)
{
    __local float f[N_PORTFOLIO * ROW], out[INTERPRETATION * ROW];
    Policy p;
    p.query = query;
    const int e = get_global_id(0);
    __global const float *row = table + e * BAR_ROW;
    __global const float *mine = e % 2 == 0 ? shift : 0;
    for (int k = 0; k < N_PORTFOLIO; k++) {
        f[k * ROW + 1] = portfolio[e * N_PORTFOLIO + k];
    }
    for (int i = 0; i < TASK_DIM; i++) {
        const float more = mine != 0 ? mine[i] : 0.0f;
        context[e * TASK_DIM + i] = query_element(&p, row, f + 1, i) + more;
    }
    for (int s = 0; s < SCENARIOS; s++) {
        attend(&p, row, f + 1, mine, s, out + 1);
        for (int i = 0; i < INTERPRETATION; i++) {
            seen[(e * SCENARIOS + s) * INTERPRETATION + i] = out[i * ROW + 1];
        }
    }
    float score[HORIZON];
    for (int h = 0; h < HORIZON; h++) {
        score[h] = row[h * LATENT];
    }
    const float den = share(score);
    for (int h = 0; h < HORIZON; h++) {
        shares[e * HORIZON + h] = score[h] / den;
    }
}

__kernel void test_interpretation_at(__global int *at)
{
    at[get_global_id(0)] = interpretation_at(get_global_id(0));
}
"""


def sizes_of(group=False, **changed):
    network = NETWORK.model_copy(update=changed)
    return Sizes(shape_of(network, slots=0), group, 2**16, "")


def files(variant):
    task = ("task_group.cl",) if variant == "group" else ()
    queries = f"layers_{variant}.cl", f"queries_{variant}.cl"
    return ("rollout.cl", *queries, *task, f"scenario_{variant}.cl")


@pytest.fixture
def lanes(device_program):
    return device_program(files("lanes"), LANES, sizes_of().defines())


@pytest.fixture
def tile_of_8(monkeypatch):
    monkeypatch.setattr("opencl.rollout.sizes.TILE", 8)


def draw(seed, *shape):
    return np.random.default_rng(seed).normal(0, 1, shape).astype(F32)


@pytest.mark.parametrize("at, n", [(0, 4), (3, 8), (5, 10), (1, 3)])
def test_gather(lanes, at, n):
    """gather, and gather_4 below it: any run of each of 16 rows."""
    rows = draw(1, N, 40)
    (out,) = evaluate(lanes, "test_gather", 1, rows, I32(at), I32(n), out=[np.empty((n, N), F32)])
    np.testing.assert_array_equal(out, rows[:, at : at + n].T)


def test_task_context_and_project_lanes(lanes):
    scene, portfolio = Scene(), draw(2, N, N_PORTFOLIO)
    w, sizes = scene.weights[0], sizes_of()
    table = np.zeros((N, sizes.bar_row), F32)
    calendar = scene.x[:N][:, list(CALENDAR)] @ w.Wq_calendar.T + w.bq_calendar
    table[:, sizes.calendar_at : sizes.share_at] = calendar
    query = pack(sizes, [w])["query"][0]
    (out,) = evaluate(
        lanes, "test_task_context", 1, query, table, portfolio.T.copy(),
        out=[np.empty((DIM + 1, N), F32)],
    )  # fmt: skip
    wanted = task_context(w, scene.x[:N], portfolio)
    np.testing.assert_allclose(out[:DIM].T, wanted, atol=1e-5)
    np.testing.assert_array_equal(out[DIM], out[0])  # project_lanes alone
    assert (len(BALANCE), len(POSITION)) == (6, 7)


def kept(scores, k):
    """Shares of the k best of each row; equal scores: the first."""
    scores = scores.copy()
    if k:
        order = np.argsort(-scores, axis=1, kind="stable")[:, k:]
        np.put_along_axis(scores, order, -np.inf, 1)
    return softmax(scores)


def scene_tokens():
    tokens = draw(5, N, S, H, L)
    tokens[0, 0, 2] = tokens[0, 0, 1]  # equal scores: the first is kept
    tokens[1, 0, :, 0] = 1.0
    return tokens


@pytest.mark.parametrize("k", [0, 1, 3])
def test_share_lanes_and_attend_lanes(device_program, k):
    """With all tokens and with the k best."""
    program = device_program(files("lanes"), LANES, sizes_of(top_k=k).defines())
    query, tokens, weight = draw(4, N, L), scene_tokens()[:, 0], draw(6, N)
    out, shares = evaluate(
        program, "test_attend", 1, query.T.copy(), tokens.reshape(N, -1).T.copy(), weight,
        out=[np.empty((L, N), F32), np.empty((H, N), F32)],
    )  # fmt: skip
    w = Scene().weights[0]
    w = type(w)(**{**vars(w), "top_k": k})
    wide = np.concatenate([query, query, query], axis=1)  # one scenario, three equal queries
    wanted = attend(w, wide, tokens[:, None], weight[:, None])[:, :L]
    np.testing.assert_allclose(out.T, wanted, atol=2e-6)
    np.testing.assert_allclose(shares.T, kept(tokens[:, :, 0], k), atol=1e-6)


@pytest.mark.parametrize("k, latent", [(0, L), (1, L), (3, L), (0, 8)])
def test_queries_and_attention_of_a_group(device_program, tile_of_8, k, latent):
    """query_element, project, query_latent, load_latent, share, attend; half shifted."""
    network = NETWORK.model_copy(update={"top_k": k, "latent": latent})
    scene, sizes = Scene(network), sizes_of(True, top_k=k, latent=latent)
    program = device_program(files("group"), GROUP, sizes.defines())
    w, tokens, weight = scene.weights[0], scene_tokens()[..., :latent].copy(), draw(6, N, S)
    portfolio, shift = draw(2, N, N_PORTFOLIO), draw(7, 3 * S * latent)
    table = np.zeros((N, sizes.bar_row), F32)
    table[:, : sizes.calendar_at] = tokens.reshape(N, -1)
    calendar = scene.x[:N][:, list(CALENDAR)] @ w.Wq_calendar.T + w.bq_calendar
    table[:, sizes.calendar_at : sizes.share_at] = calendar
    table[:, sizes.share_at : sizes.input_at] = weight
    query, width = pack(sizes, [w])["query"][0], 4 * -(-latent // 4)
    context, seen, shares = evaluate(
        program, "test_attend", N, query, table, portfolio, shift,
        out=[np.empty(s, F32) for s in ((N, 3 * S * latent), (N, S, 3, width), (N, H))], group=1,
    )  # fmt: skip
    wanted = task_context(w, scene.x[:N], portfolio)
    wanted[::2] += shift
    np.testing.assert_allclose(context, wanted, atol=1e-5)
    wanted = attend(w, wanted, tokens, weight).reshape(N, 3, S, latent).swapaxes(1, 2)
    np.testing.assert_allclose(seen[..., :latent], wanted, atol=1e-5)
    assert not seen[..., latent:].any()  # the padding
    np.testing.assert_allclose(shares, kept(tokens[:, 0, :, 0], k), atol=1e-6)


def test_interpretations_lie_in_h_then_in_the_room(device_program, tile_of_8):
    constants = sizes_of(True).defines()
    program = device_program(files("group"), GROUP, constants)
    inside, size = constants["CHUNK_IN_H"], constants["INTERPRETATION"] * constants["ROW"]
    (at,) = evaluate(program, "test_interpretation_at", 2 + inside, out=[np.empty(2 + inside, I32)])
    assert at.tolist() == [i * size for i in (*range(inside), 0, 1)]
