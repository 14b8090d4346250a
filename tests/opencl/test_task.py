"""task_*.cl: the task bank's search inside the rollout, exact and guessed, of both kernels.

The exact search equals `retrieve_rows` bit for bit; a guess either equals it or says that it is not
sure.
"""

from dataclasses import replace

import numpy as np
import pytest

from backtest.agent.bank.ordered import ordered_sum
from backtest.agent.bank.retrieval import apply_rows, retrieve_rows, scores
from backtest.agent.bank.snapshot import ABSTAIN, MISS
from backtest.agent.scenario_layout import CALENDAR
from backtest.agent.scenario_weights import task_context
from backtest.market.layout import N_PORTFOLIO
from opencl.buffers import empty, upload
from opencl.rollout import PolicySkills
from opencl.rollout.packing import pack
from opencl.rollout.sizes import GUESS, Sizes
from opencl.rollout.skills import task_banks
from tests.opencl.rollout.scene import NETWORK, Scene, shape_of
from tests.opencl.wrapping import evaluate
from tests.snapshots import snapshot_of

F32, I32 = np.float32, np.int32
S, L, N, TILE = NETWORK.scenarios, NETWORK.latent, 16, 8
DIM = 3 * S * L
BANK = ("bank_keys", "center", "entries", "disagree", "shift", "guess")
LANES = """
__kernel void test_search(__global const float *given, __global const float *keys,
                          __global const float *center, __global const float4 *entries,
                          __global const uchar *disagree, __global const float *shift,
                          __global const float *guess, const int count, __global int *slots,
                          __global float *out)
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

// One group of 16 an item: its portfolio and inputs, the context and what is found.
__kernel void test_guess(__global const float *query, __global const float *table,
                         __global const float *portfolio, __global const float4 *entries,
                         __global const uchar *disagree, __global const float *guess,
                         __global int *slots, __global int *sure, __global float *contexts)
{
    const int i = get_global_id(0);
    Policy p;
    p.query = query;
    p.entries = entries;
    p.disagree = disagree;
    p.guess = guess;
    __global const float *row[LANES];
    lanes_t f[N_PORTFOLIO], input[N_CALENDAR + 3], context[TASK_ROW];
    int slot[LANES];
    for (int k = 0; k < LANES; k++) {
        row[k] = table + (LANES * i + k) * BAR_ROW;
    }
    for (int k = 0; k < N_PORTFOLIO; k++) {
        f[k] = vload16(i * N_PORTFOLIO + k, portfolio);
    }
    task_context(&p, row, f, context);
    gather(row, INPUT_AT, N_CALENDAR, input);
    sure[i] = guess_lanes(&p, f, input, LANES, slot) && live_slots(&p) > 0;
    for (int k = 0; k < LANES; k++) {
        slots[LANES * i + k] = slot[k];
    }
    for (int e = 0; e < TASK_DIM; e++) {
        vstore16(context[e], i * TASK_DIM + e, contexts);
    }
}

__kernel void test_guess_holds(__global const float *score, const float error, __global int *holds,
                               __global float *third)
{
    Guess g = guess_none();
    for (int n = 0; n < 4; n++) {
        g = guess_partial(g, score[get_global_id(0) * 4 + n], n);
    }
    holds[get_global_id(0)] = guess_holds(&g, error);
    third[get_global_id(0)] = g.third;
    third[get_global_size(0) + get_global_id(0)] = guess_error(1.0f, 0.5f) * 0x1.0p+24f;
}
"""
GROUP = """
__kernel void test_guess_sum(__global const float *guess, __global const float *u,
                             __global float *out)
{
    Policy p;
    p.guess = guess;
    float mine[GUESS];
    for (int k = 0; k < GUESS; k++) {
        mine[k] = u[k];
    }
    out[get_global_id(0)] = guess_sum(&p, get_global_id(0), mine);
}

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void test_search(
    __global const float *query, __global const float *table, __global const float *portfolio,
    __global const float *keys, __global const float *center, __global const float4 *entries,
    __global const uchar *disagree, __global const float *shift, __global const float *guess,
    __global int *slots, __global int *guessed, __global int *sure, __global int *both,
    __global float *context)
{
    __local float h[H_SIZE] __attribute__((aligned(16)));
    __local float room[ROOM_ROWS * ROW] __attribute__((aligned(16)));
    __local float f[N_PORTFOLIO * ROW];
    __local int place[TILE], slot[TILE], list[TILE], unsure;
    Policy p;
    p.query = query;
    p.table = table;
    p.keys = keys;
    p.center = center;
    p.entries = entries;
    p.disagree = disagree;
    p.guess = guess;
    const int j = get_local_id(0);
    const int first = get_group_id(0) * TILE;
    if (j < TILE) {
        place[j] = first + TILE - 1 - j; // rows in the reverse order
        for (int k = 0; k < N_PORTFOLIO; k++) {
            f[k * ROW + j] = portfolio[(first + j) * N_PORTFOLIO + k];
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    search_task(&p, place, f, 1, slot, &unsure, h, room); // step 1: one row further
    if (j < TILE) {
        both[first + j] = slot[j];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    __local float *total = SEARCH_IN_H ? h : room;
    guess_group(&p, place, f, 1, total, slot, list, &unsure);
    if (j < TILE) {
        guessed[first + j] = slot[j];
        sure[first + j] = 1;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (j < unsure) {
        sure[first + list[j]] = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (j < TILE) {
        list[j] = TILE - 1 - j;
        slot[j] = MISS;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    search_group(&p, place, f, 1, list, TILE, total + (SLOTS + GUESS + 1) * ROW, total, slot);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (j < TILE) {
        slots[first + j] = slot[j];
        for (int e = 0; e < TASK_DIM; e++) {
            context[(first + j) * TASK_DIM + e] =
                query_element(&p, table + (place[j] + 1) * BAR_ROW, f + j, e);
        }
    }
}
"""


def sizes_of(group=False):
    return Sizes(shape_of(NETWORK), group, 2**16, "")


def program_of(device_program, variant):
    names = ("layers", "queries")
    files = (*(f"{name}_{variant}.cl" for name in names), "task_guess.cl", f"task_{variant}.cl")
    text = LANES if variant == "lanes" else GROUP
    sizes = sizes_of(variant == "group").defines()
    return device_program(("skill_score.cl", "rollout.cl", *files), text, sizes)


@pytest.fixture
def lanes(device_program):
    return program_of(device_program, "lanes")


@pytest.fixture
def group(device_program, monkeypatch):
    monkeypatch.setattr("opencl.rollout.sizes.TILE", TILE)
    return program_of(device_program, "group")


@pytest.fixture(scope="module")
def scene():
    return Scene()


def draw(seed, *shape):
    return np.random.default_rng(seed).normal(0, 1, shape).astype(F32)


def rows_of(scene, sizes, x):
    """Bar table rows of states x: calendar queries and what they read."""
    w, table = scene.weights[0], np.zeros((len(x), sizes.bar_row), F32)
    table[:, sizes.calendar_at : sizes.share_at] = (
        x[:, list(CALENDAR)] @ w.Wq_calendar.T + w.bq_calendar
    )
    table[:, sizes.input_at : sizes.input_at + len(CALENDAR)] = x[:, list(CALENDAR)]
    return table


@pytest.mark.parametrize("slots, count", [(7, N), (4, N), (2, 5)])
def test_search_lanes_and_correct_lanes(lanes, scene, slots, count):
    sizes, h = sizes_of(), draw(slots, 200, DIM)
    snapshot = snapshot_of(h, slots, DIM, slots, threshold=0.0)
    packed, places = task_banks(sizes, scene.policies[:2], [None, PolicySkills(snapshot)])
    assert places == [-1, 0]
    seen = []
    for first in range(0, 96, N):
        part = h[first : first + N].copy()
        part[0] = snapshot.center  # no direction
        slot, out = evaluate(
            lanes, "test_search", 1, part.T.copy(), *(packed[name][0] for name in BANK),
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


def guess(program, scene, snapshot, x, portfolio):
    """Slots, sureness and contexts of rows, 16 at a time."""
    sizes, w = sizes_of(), scene.weights[0]
    packed, _ = task_banks(sizes, [w], [PolicySkills(snapshot)])
    query = pack(sizes, [w])["query"][0]
    n = len(x) // N
    slot, sure, context = evaluate(
        program, "test_guess", n, query, rows_of(scene, sizes, x),
        portfolio.reshape(n, N, -1).swapaxes(1, 2).copy(),
        *(packed[name][0] for name in ("entries", "disagree", "guess")),
        out=[np.empty(n * N, I32), np.empty(n, I32), np.empty((n, DIM, N), F32)],
    )  # fmt: skip
    return (
        slot,
        np.repeat(sure, N) != 0,
        np.ascontiguousarray(context.swapaxes(1, 2)).reshape(-1, DIM),
    )


def account(n, seed=5):
    """Portfolios as they occur: some floats large, some always 0."""
    portfolio = draw(seed, n, N_PORTFOLIO) * np.exp(draw(seed + 1, N_PORTFOLIO))
    portfolio[:, 9] = 0
    return portfolio.astype(F32)


def test_a_guess_that_is_sure_is_right_and_most_are(lanes, scene):
    x, portfolio = draw(8, 640, scene.x.shape[1]), account(640)
    snapshot = snapshot_of(task_context(scene.weights[0], x, portfolio), 7, DIM, 1, threshold=0.3)
    slot, sure, context = guess(lanes, scene, snapshot, x, portfolio)
    np.testing.assert_allclose(context, task_context(scene.weights[0], x, portfolio), atol=2e-4)
    np.testing.assert_array_equal(slot[sure], retrieve_rows(snapshot, context)[sure])
    assert sure.mean() > 0.8 and {MISS, ABSTAIN} < set(slot[sure])


def test_a_guess_at_the_threshold_is_not_sure(lanes, scene):
    """The threshold is a query's own cosine, or one bit above it; and queries near the centre."""
    x, portfolio = draw(9, N, scene.x.shape[1]), account(N)
    contexts = task_context(scene.weights[0], x, portfolio)
    snapshot = snapshot_of(contexts, 5, DIM, 2, threshold=-1.0, eligible=1.0)
    snapshot = replace(snapshot, bonus=np.zeros(5, F32), disagree=np.zeros((5, 5), np.uint8))
    for row in range(0, N, 3):
        _, _, context = guess(lanes, scene, snapshot, x, portfolio)
        best = scores(snapshot, context)[row].max()
        for threshold in (best, np.nextafter(best, F32(2))):
            at = replace(snapshot, threshold=threshold)
            _, sure, context = guess(lanes, scene, at, x, portfolio)
            assert not sure.any()
            assert (retrieve_rows(at, context)[row] >= 0) == (threshold == best)
    near = replace(snapshot, center=context[0])
    _, sure, _ = guess(lanes, scene, near, x, portfolio)
    assert not sure.any()


def test_when_a_guess_holds(lanes):
    """guess_holds, guess_partial, guess_none, guess_error: an error of 1e-3, limits of 3e-3."""
    off = -np.inf
    score = np.array(
        [[off] * 4, [0.5, off, off, off], [0.5, 0.4, off, off], [0.4, 0.402, off, off],
         [0.5, 0.481, off, off], [0.5, 0.476, off, off], [0.5, 0.4, 0.398, off],
         [0.2, 0.5, 0.4, 0.3], [0.5, 0.49, 0.3, off]], F32,
    )  # fmt: skip
    n = len(score)
    holds, third = evaluate(
        lanes, "test_guess_holds", n, score, F32(1e-3), out=[np.empty(n, I32), np.empty(2 * n, F32)]
    )
    assert (holds != 0).tolist() == [True, True, True, False, False, True, False, True, True]
    np.testing.assert_array_equal(third[:n], np.sort(score, axis=1)[:, 1])
    rounds = -(-DIM // 64)
    assert (third[n:] == 256 + 4 * rounds + 128).all()
    assert GUESS == 20


@pytest.mark.parametrize("slots", [7, 2])
def test_search_group_and_guess_group(group, scene, slots):
    """On the contexts that query_element gives them; a tile is sure when all its episodes are."""
    sizes, n = sizes_of(group=True), 40 * TILE
    w, x, portfolio = scene.weights[0], draw(slots, n, scene.x.shape[1]), account(n)
    snapshot = snapshot_of(task_context(w, x, portfolio), slots, DIM, 3, threshold=0.3)
    packed, _ = task_banks(sizes, [w], [PolicySkills(snapshot)])
    # the search begins a row further on, and a tile reads its rows backwards
    table = np.zeros((n + 1, sizes.bar_row), F32)
    table[1:] = rows_of(scene, sizes, x).reshape(-1, TILE, sizes.bar_row)[:, ::-1].reshape(n, -1)
    arrays = (pack(sizes, [w])["query"][0], table, portfolio, *(packed[k][0] for k in BANK))
    device = group.device
    out = [empty(device, n, I32) for _ in range(4)] + [empty(device, (n, DIM), F32)]
    group.kernel("test_search")(
        device.queue, (n // TILE * sizes.items,), (sizes.items,),
        *(upload(device, np.ascontiguousarray(a)).buffer for a in arrays),
        *(held.buffer for held in out),
    )  # fmt: skip
    slot, guessed, sure, both, context = (held.read() for held in out)
    np.testing.assert_allclose(context, task_context(w, x, portfolio), atol=2e-4)
    wanted = retrieve_rows(snapshot, context)
    np.testing.assert_array_equal(slot, wanted)
    np.testing.assert_array_equal(both, wanted)
    np.testing.assert_array_equal(guessed[sure != 0], wanted[sure != 0])
    assert sure.mean() > 0.8 and MISS in slot and max(slot) >= 0


def test_guess_sum(group):
    rows, u = draw(71, 9, GUESS), draw(72, GUESS)
    (out,) = evaluate(group, "test_guess_sum", 9, rows, u, out=[np.empty(9, F32)])
    np.testing.assert_allclose(out, rows @ u, rtol=1e-5, atol=1e-6)
