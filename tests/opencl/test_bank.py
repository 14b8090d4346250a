"""Banks on a device against backtest/agent/bank: the three standard tests, and the surface."""

from functools import cache

import numpy as np
import pytest

from backtest.agent.bank import ABSTAIN, MISS, Bank, Decision, SlotState
from backtest.agent.bank.rough import rough_bank, rough_parameters, rough_rows
from backtest.agent.bank.utility import influence_of
from opencl import bank as device_banks
from opencl import bank_program, retrieval
from opencl.bank import DeviceBank
from opencl.devices import POCL, all_devices
from tests.opencl.bank_scenes import assert_same_banks, assert_same_results, copy_of

F32 = np.float32
SHAPES = [(1, 1, 1), (2, 3, 5), (8, 64, 64), (3, 70, 130), (21, 8, 70), (5, 130, 1)]  # N, K, D
LIVES = 10
# PoCL 5.0 aborts on barriers that a whole group passes or skips; on CPUs one item has the bank.
WITH_GROUPS = [device for device in all_devices() if device.platform != POCL]


def rows_of(banks, rows, seed):
    """Return h [M, rows, K], g [M, rows, D], another stream for each bank."""
    made = [rough_rows(rows, b.key_dim, b.dim, seed + i) for i, b in enumerate(banks)]
    return np.stack([h for h, _ in made]), np.stack([g for _, g in made])


@cache
def stream(seed):
    """Return banks before each row, h, g, results, banks after each row of the definition."""
    slots, key_dim, dim = SHAPES[seed]
    bank = Bank(slots, dim, key_dim=key_dim, **rough_parameters(seed))
    h, g = rough_rows(50, key_dim, dim, seed)
    states, results = [copy_of(bank)], []
    for x, y in zip(h, g, strict=True):
        decision, slot = bank.update(x, y)
        results.append((np.array([decision]), np.array([slot])))
        states.append(copy_of(bank))
    return states[:-1], h, g, results, states[1:]


@pytest.mark.parametrize("seed", range(len(SHAPES)))
def test_one_update_from_each_state_of_a_stream(device, seed):
    """Every row starts from the definition's state, so a difference cannot hide behind another."""
    before, h, g, results, after = stream(seed)
    on_device = DeviceBank(device, before)  # one bank a row
    assert_same_results(results, on_device.update_rows(h[:, None], g[:, None]))
    assert_same_banks(after, on_device.read())


@cache
def life(seed):
    """Return new banks, h, g, results, and the banks after it, of the definition."""
    slots, key_dim, dim = SHAPES[seed % len(SHAPES)]
    parameters = rough_parameters(100 + seed)
    banks = [Bank(slots, dim, key_dim=key_dim, **parameters) for _ in range(1 + seed % 2)]
    new = [copy_of(bank) for bank in banks]
    h, g = rows_of(banks, 90, seed)
    return new, h, g, [b.update_rows(x, y) for b, x, y in zip(banks, h, g, strict=True)], banks


@pytest.mark.parametrize("seed", range(LIVES))
def test_whole_streams_of_many_banks(device, seed):
    """A batch is its rows one after the other, in one launch or in three."""
    new, h, g, expected, after = life(seed)
    on_device = DeviceBank(device, new)
    parts = [on_device.update_rows(h[:, a:b], g[:, a:b]) for a, b in ((0, 1), (1, 70), (70, 90))]
    seen = [np.concatenate(column, axis=1) for column in zip(*parts, strict=True)]
    assert_same_results(expected, seen)
    assert_same_banks(after, on_device.read())
    assert on_device.counters == [bank.counters for bank in after]


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Programs of groups whose items share sums, one a lane."""
    for module in (bank_program, device_banks):
        monkeypatch.setattr(module, "by_group", lambda device: True)
    bank_program.bank_program.cache_clear()
    yield
    bank_program.bank_program.cache_clear()


@pytest.mark.parametrize("one", WITH_GROUPS, ids=lambda device: device.platform)
def test_items_that_share_sums_find_the_same(as_on_a_gpu, one):
    for seed in range(LIVES):
        new, h, g, expected, after = life(seed)
        on_device = DeviceBank(one, new)
        assert_same_results(expected, on_device.update_rows(h, g))
        assert_same_banks(after, on_device.read())
    assert bank_program.bank_sizes(one)["ITEMS"] == 256
    snapshots, slots = [b.snapshot(0.5) for b in after], np.zeros((len(after), 9), np.int32)
    before, behind = np.random.default_rng(1).normal(0, 1, (2, *slots.shape, on_device.dim))
    before, behind = before.astype(F32), behind.astype(F32)
    seen = on_device.influence_rows(snapshots, before, behind, slots)
    for i, (mine, snapshot) in enumerate(zip(after, snapshots, strict=True)):
        trapezoid = mine.section.influence_rule == "trapezoid"
        wanted = influence_of(before[i], behind[i], snapshot.shift[slots[i]], trapezoid=trapezoid)
        np.testing.assert_array_equal(seen[i], wanted)


def test_the_streams_reach_every_decision_and_state():
    decisions, states, counted = set(), set(), set()
    for seed in range(LIVES):
        *_, results, banks = life(seed)
        for bank, (decision, _) in zip(banks, results, strict=True):
            decisions |= set(decision.tolist())
            states |= set(bank.state.state.tolist())
            counted |= {name for name, value in bank.counters.items() if value}
    assert decisions == set(Decision)
    assert states == set(SlotState) - {SlotState.CANDIDATE}
    rare = {"rows", "non_finite", "swallowed", "recycled", "small", "revivals", "drops", "expired"}
    assert rare <= counted


def edge_rows():
    """(name, parameters, h, g) of the rows that break things; banks of 2 slots, 3 dimensions."""
    one, two = [1.0, 0, 0], [0, 1.0, 0]
    huge, tiny = 1e19, 1e-30
    nan, inf = float("nan"), float("inf")
    return [
        ("zero g", {}, [one], [[0.0, 0, 0]]),
        ("zero context", {}, [[0.0, 0, 0]] * 3, [one] * 3),
        ("h is not a number", {}, [[nan, 0, 0]], [one]),
        ("g is infinite", {}, [one], [[inf, 0, 0]]),
        ("the square of h overflows", {}, [[1e20, 0, 0]], [one]),
        ("the square of g overflows", {}, [one], [[1e20, 0, 0]]),
        ("large but finite", {}, [[huge, 0, 0]] * 4, [[huge, 0, 0]] * 4),
        ("a square that vanishes", {}, [[tiny, 0, 0]] * 3, [[tiny, 0, 0]] * 3),
        ("g far below its average", {}, [one] * 3, [one, [1e-4, 0, 0], one]),
        ("opposite directions", {}, [one] * 6, [one, [-1.0, 0, 0]] * 3),
        ("an average of opposites", {"direction_threshold": -1 + 1e-7, "beta_direction": 0.5},
         [one] * 4, [one, one, [-1.0, 0, 0], one]),
        ("one confirmation", {"min_confirmations": 1}, [one, two, [0, 0, 1.0]], [one, two, two]),
        ("no room at all", {"min_confirmations": 1}, [one, two, [0, 0, 1.0], [-1.0, 0, 0]],
         [one, two, one, two]),
        ("a full pool", {"candidate_pool": 1}, [one, two, one, one], [one, two, one, one]),
        ("longer than allowed", {"representation": "full"}, [one] * 4, [[5.0, 5, 5]] * 4),
        ("an idle slot goes", {"min_confirmations": 1, "inactivity_age": 1, "protection_age": 0},
         [one, two] + [[0, 0, 1.0]] * 6, [one, two] + [one] * 6),
        ("a sum overflows in its cell", {"aggregate": 2}, [one] * 2, [[1.8e19, 0, 0]] * 2),
        ("cells are reused", {"aggregate": 3, "aggregate_cells": 1}, [one, two, one], [one] * 3),
    ]  # fmt: skip


@pytest.mark.parametrize("representation", ["direction_magnitude", "full"])
@pytest.mark.parametrize("row", edge_rows(), ids=lambda row: row[0])
def test_edge_rows(device, row, representation):
    _, parameters, h, g = row
    base = {"aggregate": 1, "similarity_threshold": 0.5, "min_confirmations": 2}
    bank = Bank(2, 3, **(base | {"representation": representation} | parameters))
    on_device = DeviceBank(device, [bank])
    h, g = np.array(h, F32), np.array(g, F32)
    expected = bank.update_rows(h, g)
    assert_same_results([expected], on_device.update_rows(h[None], g[None]))
    assert_same_banks([bank], on_device.read())
    for name, array in on_device.read()[0].state_dict().items():
        assert np.isfinite(array).all(), name


def test_rows_behind_a_count_are_left_out(device):
    banks = [Bank(4, 6, aggregate=1, similarity_threshold=0.7) for _ in range(3)]
    on_device = DeviceBank(device, banks)
    h, g = rows_of(banks, 40, seed=1)
    counts = np.array([40, 0, 17])
    decision, slot = on_device.update_rows(h, g, counts=counts)
    for i, bank in enumerate(banks):
        expected = bank.update_rows(h[i, : counts[i]], g[i, : counts[i]])
        np.testing.assert_array_equal(decision[i, : counts[i]], expected[0])
        assert not decision[i, counts[i] :].any() and (slot[i, counts[i] :] == MISS).all()
    assert_same_banks(banks, on_device.read())


def test_rows_and_queries_go_in_tiles(device, monkeypatch):
    monkeypatch.setattr(retrieval, "TILE_BYTES", 1000)  # a few rows a launch
    banks = [Bank(3, 20, key_dim=10, **rough_parameters(5)) for _ in range(2)]
    on_device = DeviceBank(device, banks)
    h, g = rows_of(banks, 60, seed=5)
    size = np.abs(rows_of(banks, 60, seed=6)[1][..., 0])
    size[0, 3] = np.nan
    expected = [b.update_rows(*rows) for b, *rows in zip(banks, h, g, size, strict=True)]
    assert_same_results(expected, on_device.update_rows(h, g, size))
    assert_same_banks(banks, on_device.read())
    snapshots = on_device.snapshot()
    found = np.stack([b.observe(x) for b in banks for x in h[0]]).reshape(2, 60)
    same = np.stack([h[0]] * 2)
    np.testing.assert_array_equal(on_device.retrieve_rows(snapshots, same), found)


def script(rng, banks):
    """Yield (name, arguments of the device, arguments of each bank) of a drawn life of banks."""
    m, n = len(banks), banks[0].slots
    for step in range(12):
        h, g = rows_of(banks, 6, seed=step)
        slots = rng.integers(MISS, n, m).astype(np.int32)
        one = rng.normal(0, 1, m).astype(F32)
        one[rng.random(m) < 0.1] = np.nan
        match rng.integers(0, 9):
            case 0:
                yield "update_rows", (h, g), list(zip(h, g, strict=True))
            case 1:
                yield "tick", (), [()] * m
            case 2:
                yield "update_direction", (slots, g[:, 0]), list(zip(slots, g[:, 0], strict=True))
            case 3:
                yield "add_influence", (slots, one), list(zip(slots, one, strict=True))
            case 4:
                yield "end_episode", (one,), [(x,) for x in one]
            case 5:
                deltas = rng.normal(-0.1, 0.3, (m, n, 9)).astype(F32)
                yield "solo_round", (deltas,), [(rows,) for rows in deltas]
            case 6:
                uses = rng.integers(0, 5, (m, n))
                given = uses, uses > 0, uses[:, 0], uses[:, -1]
                yield "add_uses", given, list(zip(*given, strict=True))
            case 7:
                yield "close_collection", (), [()] * m
            case 8:
                yield "retrieve", (h[:, 0], True, True), [(x, True, True) for x in h[:, 0]]
    yield "reset_influence", (), [()] * m
    yield "clear", (), [()] * m
    context = rng.normal(0, 1, (m, 50, banks[0].key_dim)).astype(F32)
    yield "fit_context", (context, generators(m)), list(zip(context, generators(m), strict=True))


def generators(count):
    return [np.random.default_rng(i) for i in range(count)]


@pytest.mark.parametrize("seed", range(3))
def test_the_surface_is_that_of_a_bank(device, seed):
    slots, key_dim, dim = SHAPES[seed]
    changes = rough_parameters(200 + seed) | {"similarity_threshold": "auto"}
    banks = [
        rough_bank(slots, dim, seed + i, key_dim=key_dim, rows=40, **changes) for i in range(2)
    ]
    on_device = DeviceBank(device, banks)
    for name, given, each in script(np.random.default_rng(seed), [copy_of(b) for b in banks]):
        seen = getattr(on_device, name)(*given)
        for i, (bank, arguments) in enumerate(zip(banks, each, strict=True)):
            if name in ("update_direction", "add_influence") and arguments[0] == MISS:
                continue  # the device's way to leave a bank alone
            wanted = getattr(bank, name)(*arguments)
            if name == "update_direction":
                assert seen[i] == wanted
            elif wanted is not None:
                np.testing.assert_array_equal(seen[0][i], wanted[0])
                np.testing.assert_array_equal(seen[1][i], wanted[1])
        assert_same_banks(banks, on_device.read(), name)


@pytest.mark.parametrize("rule", ["solo", "participation", "original"])
@pytest.mark.parametrize("influence_rule", ["trapezoid", "endpoint"])
def test_whole_episodes(device, rule, influence_rule):
    """bank_influence and bank_episodes: applications in order, then the Delta of their episode."""
    changes = {"utility_rule": rule, "influence_rule": influence_rule, "aggregate": 1}
    changes = rough_parameters(1) | changes | {"min_utility": -1.0}
    banks = [rough_bank(6, 70, seed, rows=40, **changes) for seed in (1, 2)]
    on_device = DeviceBank(device, banks)
    rng, shape = np.random.default_rng(3), (2, 5, 7)
    snapshots = on_device.snapshot(alpha=0.7)
    before, after = rng.normal(0, 1, (2, 2, 35, 70)).astype(F32)
    after[0, 3] = np.inf
    slots = rng.integers(ABSTAIN, 6, (2, 35)).astype(np.int32)
    deltas = rng.uniform(-1, 1, (2, 5)).astype(F32)
    deltas[1, 2:4] = 0, np.nan
    moved = on_device.influence_rows(snapshots, before, after, slots)
    for i, bank in enumerate(banks):
        trapezoid, hit = influence_rule == "trapezoid", slots[i] >= 0
        shift = snapshots[i].shift[np.maximum(slots[i], 0)]
        with np.errstate(invalid="ignore"):
            expected = influence_of(before[i], after[i], shift, trapezoid=trapezoid)
        np.testing.assert_array_equal(moved[i][hit], expected[hit])
        assert not moved[i][~hit].any()
        for e in range(5):
            for t in np.flatnonzero(slots[i, 7 * e : 7 * e + 7] >= 0) + 7 * e:
                bank.add_influence(slots[i, t], moved[i, t])
            bank.end_episode(deltas[i, e])
    on_device.end_episodes(slots.reshape(shape), moved.reshape(shape), deltas)
    assert_same_banks(banks, on_device.read())
    assert banks[0].counters["utility_updates"] > 1


def test_what_does_not_fit_is_refused(device):
    with pytest.raises(ValueError, match="one shape and parameters"):
        DeviceBank(device, [Bank(2, 3), Bank(3, 3)])
    with pytest.raises(ValueError, match="one shape and parameters"):
        DeviceBank(device, [Bank(2, 3), Bank(2, 3, beta_key=0.2)])
    with pytest.raises(ValueError, match="not 0"):
        DeviceBank(device, [])
    bank = DeviceBank(device, [Bank(2, 3)] * 2)
    with pytest.raises(ValueError, match=r"h is float32\[2, 4, 5\], not float32\[2, 4, 3\]"):
        bank.update_rows(np.zeros((2, 4, 5), F32), np.zeros((2, 4, 3), F32))
    with pytest.raises(ValueError, match=r"g is float64"):
        bank.update_rows(np.zeros((2, 4, 3), F32), np.zeros((2, 4, 3)))
    with pytest.raises(ValueError, match="below 2"):
        bank.update_direction(np.array([0, 2]), np.zeros((2, 3), F32))
    with pytest.raises(ValueError, match=r"\[2, 2\]"):
        bank.add_uses(np.zeros((2, 3), np.int64), np.zeros((2, 3), bool))


def test_the_original_banks_stay_as_they_are(device):
    bank = Bank(2, 3, aggregate=1)
    before = bank.content_hash()
    on_device = DeviceBank(device, [bank])
    h, g = rough_rows(10, 3, 3, seed=0)
    on_device.update_rows(h[None], g[None])
    assert bank.content_hash() == before != on_device.read()[0].content_hash()
