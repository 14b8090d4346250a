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
from tests.opencl.task_wrappers import GROUP, LANES
from tests.opencl.wrapping import evaluate
from tests.snapshots import snapshot_of

F32, I32 = np.float32, np.int32
S, L, N, TILE = NETWORK.scenarios, NETWORK.latent, 16, 8
DIM = 3 * S * L
BANK = ("bank_keys", "center", "entries", "disagree", "shift", "guess")


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
