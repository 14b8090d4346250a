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

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void test_queries(
    __global const float *query, __global const float *table, __global const float *portfolio,
    __global float *context, __global float *sums)
{
    __local float f[N_PORTFOLIO * ROW] __attribute__((aligned(16)));
    __local float row[ROW] __attribute__((aligned(16)));
    Policy p;
    p.query = query;
    const int i = get_global_id(0);
    for (int k = 0; k < N_PORTFOLIO; k++) {
        for (int e = 0; e < TILE; e++) {
            f[k * ROW + e] = portfolio[i * N_PORTFOLIO + k] + e;
        }
    }
    for (int e = 0; e < TASK_DIM; e++) {
        context[i * TASK_DIM + e] = query_element(&p, table + i * BAR_ROW, f, e);
    }
    for (int e = 0; e < TILE; e++) {
        row[e] = 0.5f;
    }
    add_row(row, query, f, 2, 3.0f); // two inputs, weights HIDDEN1 apart
    for (int e = 0; e < TILE; e++) {
        sums[i * TILE + e] = row[e];
    }
}
"""


def sizes_of(group=False, **changed):
    network = NETWORK.model_copy(update=changed)
    return Sizes(shape_of(network, slots=0), group, 2**16, "")


def files(variant):
    names = ("layers", "queries", "scenario")
    return ("rollout.cl", *(f"{name}_{variant}.cl" for name in names))


@pytest.fixture
def lanes(device_program):
    return device_program(files("lanes"), LANES, sizes_of().defines())


@pytest.fixture
def tile_of_8(monkeypatch):
    monkeypatch.setattr("opencl.rollout.sizes.TILE", 8)


@pytest.fixture
def group(device_program, tile_of_8):
    return device_program(files("group"), GROUP, sizes_of(group=True).defines())


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


@pytest.mark.parametrize("k", [0, 1, 3])
@pytest.mark.parametrize("variant", ["lanes", "group"])
def test_attention(device_program, tile_of_8, variant, k):
    """share_lanes, attend_lanes, share, attend: with all tokens and with the k best."""
    text = LANES if variant == "lanes" else GROUP
    sizes = sizes_of(variant == "group", top_k=k).defines()
    program = device_program(files(variant), text, sizes)
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


def test_query_element_and_add_row(group):
    """query_element (and project below it) of one episode; a row of sums that grows."""
    scene, sizes, portfolio = Scene(), sizes_of(group=True), draw(2, N, N_PORTFOLIO)
    w, table = scene.weights[0], np.zeros((N, sizes.bar_row), F32)
    calendar = scene.x[:N][:, list(CALENDAR)] @ w.Wq_calendar.T + w.bq_calendar
    table[:, sizes.calendar_at : sizes.share_at] = calendar
    query = pack(sizes, [w])["query"][0]
    context, sums = evaluate(
        group, "test_queries", N, query, table, portfolio,
        out=[np.empty((N, DIM), F32), np.empty((N, 8), F32)], group=1,
    )  # fmt: skip
    np.testing.assert_allclose(context, task_context(w, scene.x[:N], portfolio), atol=1e-5)
    a, b = query.ravel()[[0, sizes.hidden[0]]]
    inputs = portfolio[:, :2, None] + np.arange(8)
    wanted = np.maximum(0.5 + a * inputs[:, 0] + b * inputs[:, 1], 3)
    np.testing.assert_allclose(sums, wanted, rtol=1e-5)
