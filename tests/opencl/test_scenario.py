"""scenario_lanes.cl and scenario_group.cl, function by function against NumPy.

`encode` of all kinds is tested by whole rollouts: test_rollout.py and rollout/test_scenario.py.
"""

import numpy as np
import pytest

from backtest.agent.bank.ordered import ordered_sum
from backtest.agent.bank.retrieval import apply_rows, retrieve_rows
from backtest.agent.bank.snapshot import ABSTAIN, MISS
from backtest.agent.scenario_layout import BALANCE, CALENDAR, POSITION
from backtest.agent.scenario_weights import attend, softmax, task_context
from backtest.market.layout import N_PORTFOLIO
from opencl.buffers import empty, upload
from opencl.rollout import PolicySkills
from opencl.rollout.packing import pack
from opencl.rollout.sizes import Sizes
from opencl.rollout.skills import task_banks
from tests.opencl.rollout.scene import NETWORK, Scene, shape_of
from tests.opencl.wrapping import evaluate
from tests.snapshots import snapshot_of

F32, I32 = np.float32, np.int32
S, H, L, N = NETWORK.scenarios, NETWORK.horizon, NETWORK.latent, 16
DIM = 3 * S * L
FILES = ("skill_score.cl", "rollout.cl")
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

__kernel void test_search(__global const float *given, __global const float *keys,
                          __global const float *center, __global const float4 *entries,
                          __global const uchar *disagree, __global const float *shift,
                          const int count, __global int *slots, __global float *out)
{
    Policy p;
    p.keys = keys;
    p.center = center;
    p.entries = entries;
    p.disagree = disagree;
    p.shift = shift;
    lanes_t context[TASK_ROW];
    int slot[LANES];
    for (int i = 0; i < LANES; i++) {
        slot[i] = MISS;
    }
    for (int e = 0; e < TASK_DIM; e++) {
        context[e] = vload16(e, given);
    }
    search_lanes(&p, context, count, slot);
    correct_lanes(&p, slot, context);
    for (int i = 0; i < LANES; i++) {
        slots[i] = slot[i];
    }
    for (int e = 0; e < TASK_DIM; e++) {
        vstore16(context[e], e, out);
    }
}

__kernel void test_climb(__global const float *x, __global float *out, __global int *reversed)
{
    lanes_t tree[7 * (SLOTS + 1)];
    for (int c = 0; c < 64; c++) {
        lanes_t part[2];
        part[0] = vload16(reverse_6(c), x);
        part[1] = part[0] * 2.0f;
        climb(tree, 2, c, part);
        reversed[c] = reverse_6(c);
    }
    vstore16(tree[6 * (SLOTS + 1)], 0, out);
    vstore16(tree[6 * (SLOTS + 1) + 1], 1, out);
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
    __global const float *query, __global const float *tokens, __global const float *weight,
    __global float *out, __global float *shares)
{
    const int e = get_global_id(0);
    __local float seen[LATENT * ROW];
    float q[LATENT], score[HORIZON];
    for (int l = 0; l < LATENT; l++) {
        q[l] = query[l * 16 + e];
    }
    for (int h = 0; h < HORIZON; h++) {
        score[h] = tokens[(e * HORIZON + h) * LATENT];
    }
    attend(q, tokens + e * HORIZON * LATENT, weight[e], seen + 1);
    for (int l = 0; l < LATENT; l++) {
        out[l * 16 + e] = seen[l * ROW + 1];
    }
    const float den = share(score);
    for (int h = 0; h < HORIZON; h++) {
        shares[h * 16 + e] = score[h] / den;
    }
}

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void test_search(
    __global const float *query, __global const float *table, __global const float *portfolio,
    __global const float *keys, __global const float *center, __global const float4 *entries,
    __global const uchar *disagree, __global int *slots, __global float *context,
    __global float *sums)
{
    __local float partial[LOGIT_ROWS * ROW], total[ROOM_ROWS * ROW], f[N_PORTFOLIO * ROW];
    __local int place[TILE], slot[TILE];
    Policy p;
    p.query = query;
    p.table = table;
    p.keys = keys;
    p.center = center;
    p.entries = entries;
    p.disagree = disagree;
    const int j = get_local_id(0);
    if (j < TILE) {
        place[j] = TILE - 1 - j; // rows in the reverse order
        for (int k = 0; k < N_PORTFOLIO; k++) {
            f[k * ROW + j] = portfolio[k * TILE + j];
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    search_group(&p, place, f, TILE, 1, partial, total, slot); // step 1: one row further
    barrier(CLK_LOCAL_MEM_FENCE);
    if (j < TILE) {
        slots[j] = slot[j];
        for (int e = 0; e < TASK_DIM; e++) {
            context[e * TILE + j] = query_element(&p, table + (place[j] + 1) * BAR_ROW, f + j, e);
        }
        partial[j] = 0.5f;
        total[j] = 2.0f; // two inputs: the row j below
        total[ROW + j] = (float)j;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (j == 0) {
        add_row(partial, query, total, 2, 3.0f);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (j < TILE) {
        sums[j] = partial[j];
    }
}
"""


def sizes_of(group=False, **changed):
    network = NETWORK.model_copy(update=changed)
    return Sizes(shape_of(network), group, 2**16, "")


@pytest.fixture
def lanes(device_program):
    files = (*FILES, "layers_lanes.cl", "scenario_lanes.cl")
    return device_program(files, LANES, sizes_of().defines())


@pytest.fixture
def tile_of_8(monkeypatch):
    monkeypatch.setattr("opencl.rollout.sizes.TILE", 8)


@pytest.fixture
def group(device_program, tile_of_8):
    files = (*FILES, "layers_group.cl", "scenario_group.cl")
    return device_program(files, GROUP, sizes_of(group=True).defines())


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


def bank(contexts, slots, seed=0, threshold=0.1):
    return snapshot_of(contexts, slots, DIM, seed, threshold)


@pytest.mark.parametrize("slots, count", [(7, N), (4, N), (2, 5)])
def test_search_lanes_and_correct_lanes(lanes, slots, count):
    sizes, h = sizes_of(), draw(slots, 200, DIM)
    snapshot = bank(h, slots, seed=slots, threshold=0.0)
    packed, places = task_banks(sizes, [None, PolicySkills(snapshot)])
    assert places == [-1, 0]
    seen = []
    for first in range(0, 96, N):
        part = h[first : first + N].copy()
        part[0] = snapshot.center  # no direction
        slot, out = evaluate(
            lanes, "test_search", 1, part.T.copy(),
            *(packed[name][0] for name in ("bank_keys", "center", "entries", "disagree", "shift")),
            I32(count), out=[np.empty(N, I32), np.empty((DIM, N), F32)],
        )  # fmt: skip
        wanted = retrieve_rows(snapshot, part)
        wanted[count:] = MISS
        np.testing.assert_array_equal(slot, wanted)
        np.testing.assert_array_equal(out.T, apply_rows(snapshot, part, wanted))
        seen += slot.tolist()
    assert MISS in seen and max(seen) >= 0
    assert ABSTAIN in seen or slots < 7


def test_climb_and_reverse_6(lanes):
    x = draw(3, 64, N)
    out, order = evaluate(lanes, "test_climb", 1, x, out=[np.empty((2, N), F32), np.empty(64, I32)])
    np.testing.assert_array_equal(out[0], ordered_sum(x.T))
    np.testing.assert_array_equal(out[1], 2 * out[0])
    assert order[:5].tolist() == [0, 32, 16, 48, 8] and sorted(order) == list(range(64))


@pytest.mark.parametrize("k", [0, 1, 3])
@pytest.mark.parametrize("variant", ["lanes", "group"])
def test_attention(device_program, tile_of_8, variant, k):
    """share_lanes, attend_lanes, share, attend: with all tokens and with the k best."""
    text = LANES if variant == "lanes" else GROUP
    sizes = sizes_of(variant == "group", top_k=k).defines()
    files = (*FILES, f"layers_{variant}.cl", f"scenario_{variant}.cl")
    program = device_program(files, text, sizes)
    query, tokens, weight = draw(4, N, L), draw(5, N, H, L), draw(6, N)
    tokens[0, 2] = tokens[0, 1]  # equal scores: the first is kept
    tokens[1, :, 0] = 1.0
    held = tokens.reshape(N, -1).T.copy() if variant == "lanes" else tokens
    out, shares = evaluate(
        program, "test_attend", 1 if variant == "lanes" else N, query.T.copy(), held, weight,
        out=[np.empty((L, N), F32), np.empty((H, N), F32)], group=1,
    )  # fmt: skip
    w = Scene().weights[0]
    w = type(w)(**{**vars(w), "top_k": k})
    wide = np.concatenate([query, query, query], axis=1)  # one scenario, three equal queries
    wanted = attend(w, wide, tokens[:, None], weight[:, None])[:, :L]
    np.testing.assert_allclose(out.T, wanted, atol=2e-6)
    scores = tokens[:, :, 0].copy()
    if k:
        order = np.argsort(-scores, axis=1, kind="stable")[:, k:]
        np.put_along_axis(scores, order, -np.inf, 1)
    np.testing.assert_allclose(shares.T, softmax(scores), atol=1e-6)


@pytest.mark.parametrize("slots", [7, 2])
def test_search_group_query_element_and_add_row(group, slots):
    """search_group on the contexts that query_element (and project) give it, bit for bit."""
    scene, sizes, tile = Scene(), sizes_of(group=True), 8
    assert (sizes.tile == tile and sizes.defines()["SEARCH_BLOCK"] < slots + 1) or slots == 2
    w, portfolio = scene.weights[0], draw(7, 200, N_PORTFOLIO)
    snapshot = bank(task_context(w, scene.x[:100], portfolio[:100]), slots, seed=3)
    packed, _ = task_banks(sizes, [PolicySkills(snapshot)])
    query, seen = pack(sizes, [w])["query"][0], []
    device = group.device
    for first in range(0, 96, tile):
        x, mine = scene.x[first : first + tile], portfolio[first : first + tile]
        table = np.zeros((tile + 1, sizes.bar_row), F32)
        calendar = x[:, list(CALENDAR)] @ w.Wq_calendar.T + w.bq_calendar
        table[1:, sizes.calendar_at : sizes.share_at] = calendar[::-1]
        names = ("bank_keys", "center", "entries", "disagree")
        arrays = (query, table, mine.T.copy(), *(packed[name][0] for name in names))
        out = [empty(device, *form) for form in ((tile, I32), ((DIM, tile), F32), (tile, F32))]
        group.kernel("test_search")(
            device.queue, (sizes.items,), (sizes.items,),
            *(upload(device, np.ascontiguousarray(a)).buffer for a in arrays),
            *(held.buffer for held in out),
        )  # fmt: skip
        slot, context, sums = (held.read() for held in out)
        np.testing.assert_allclose(context.T, task_context(w, x, mine), atol=1e-5)
        np.testing.assert_array_equal(slot, retrieve_rows(snapshot, context.T.copy()))
        seen += slot.tolist()
        # 0.5 + 2*query[0] + e*query[HIDDEN1], at least 3
        both = query.ravel()[[0, sizes.hidden[0]]]
        wanted = np.maximum(0.5 + 2 * both[0] + np.arange(tile) * both[1], 3)
        np.testing.assert_allclose(sums, wanted, rtol=1e-6)
    assert MISS in seen and max(seen) >= 0
