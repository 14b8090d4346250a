"""skill_retrieval.cl against backtest/agent/bank/retrieval.py: many queries, many banks."""

import numpy as np
import pytest

from backtest.agent.bank import ABSTAIN, MISS
from backtest.agent.bank.retrieval import apply_rows, retrieve_rows
from backtest.agent.bank.rough import rough_bank, rough_parameters, rough_rows
from backtest.agent.bank.snapshot import Snapshot
from opencl import retrieval
from opencl.retrieval import DeviceSnapshots, tiles

F32 = np.float32


def definition(snapshots, h):
    with np.errstate(all="ignore"):
        return np.stack([retrieve_rows(s, rows) for s, rows in zip(snapshots, h, strict=True)])


def crowded(seed, slots, key_dim, dim):
    """A snapshot with repeated keys of opposed directions, and keys of all kinds."""
    from backtest.agent.bank.freeze import disagreement
    from backtest.agent.bank.ordered import norm

    rng = np.random.default_rng(seed)
    keys, directions = rng.normal(0, 1, (slots, key_dim)), rng.normal(0, 1, (slots, dim))
    keys[rng.integers(0, slots, slots // 2)] = keys[0]
    keys[rng.random(slots) < 0.1] = 0
    keys, directions = keys.astype(F32), directions.astype(F32)
    return Snapshot(
        center=rng.normal(0, 1, key_dim).astype(F32),
        keys=keys,
        norms=norm(keys),
        eligible=((rng.random(slots) < 0.8) & (norm(keys) > 0)).astype(np.uint8),
        bonus=rng.choice(np.array([0, 0, 0.01, 0.05], F32), slots),
        disagree=disagreement(directions),
        shift=rng.normal(0, 1, (slots, dim)).astype(F32),
        threshold=F32(rng.choice([-0.2, 0.0, 0.3])),
    )


def queries(snapshots, rows, seed):
    """Queries near keys, near the centre, far away and not finite; float32[M, rows, K]."""
    rng = np.random.default_rng(seed)
    made = []
    for s in snapshots:
        h = s.center + rng.normal(0, 1, (rows, len(s.center)))
        near = rng.random(rows) < 0.5
        h[near] = s.center + 0.3 * (h[near] - s.center) + s.keys[rng.integers(0, len(s.keys))]
        made.append(h.astype(F32))
        for row, value in enumerate((s.center, F32(np.nan), F32(np.inf), F32(1e20))):
            if row < rows:
                made[-1][row] = value
    return np.stack(made)


@pytest.mark.parametrize("slots", [1, 2, 8, 21])
@pytest.mark.parametrize("key_dim, dim", [(1, 3), (64, 64), (70, 5), (200, 130)])
@pytest.mark.parametrize("group", [True, False])
def test_bank_retrieve(device, monkeypatch, slots, key_dim, dim, group):
    """bank_retrieve_group (four_sums) and bank_retrieve_item find the same on every device."""
    monkeypatch.setattr(retrieval, "by_group", lambda device: group)
    snapshots = [crowded(seed, slots, key_dim, dim) for seed in range(3)]
    on_device = DeviceSnapshots(device, snapshots)
    for rows in (1, 4, 61):
        h = queries(snapshots, rows, seed=rows)
        seen = on_device.retrieve_rows(h)
        np.testing.assert_array_equal(seen, definition(snapshots, h))
    if slots == 21:
        assert {MISS, ABSTAIN} < set(seen.ravel().tolist())


@pytest.mark.parametrize("seed", range(4))
def test_banks_that_learned(device, seed):
    changes = rough_parameters(seed) | {"similarity_threshold": 0.2, "aggregate": 1}
    banks = [rough_bank(6, 9, seed + i, key_dim=20, rows=60, **changes) for i in range(2)]
    h = np.stack([rough_rows(80, 20, 9, seed + i)[0] for i in range(2)])
    for explore, only in ((False, None), (True, None), (True, 2)):
        snapshots = [bank.snapshot(explore=explore, only=only) for bank in banks]
        seen = DeviceSnapshots(device, snapshots).retrieve_rows(h)
        np.testing.assert_array_equal(seen, definition(snapshots, h))
        assert only is None or set(seen.ravel().tolist()) <= {MISS, 2}


def test_gather_correction_is_a_select(device):
    """bank_gather, gather_correction: rows without a slot keep their bits, negative zeros too."""
    snapshots = [crowded(seed, 5, 8, 70) for seed in range(2)]
    rng = np.random.default_rng(0)
    h = rng.normal(0, 1, (2, 33, 70)).astype(F32)
    h[:, :, 3] = -0.0
    found = rng.integers(ABSTAIN, 5, (2, 33)).astype(np.int32)
    seen = DeviceSnapshots(device, snapshots).apply_rows(h, found)
    for i, snapshot in enumerate(snapshots):
        expected = apply_rows(snapshot, h[i], found[i])
        assert seen[i].tobytes() == expected.tobytes()
    assert np.signbit(seen[found < 0][:, 3]).all()


def test_tiles_cover_every_row_once():
    assert list(tiles(0, 8)) == []
    assert list(tiles(5, 2**27)) == [slice(0, 2), slice(2, 4), slice(4, 5)]
    assert list(tiles(2, 2**30)) == [slice(0, 1), slice(1, 2)]


def test_what_does_not_fit_is_refused(device):
    with pytest.raises(ValueError, match="one shape"):
        DeviceSnapshots(device, [crowded(0, 2, 3, 4), crowded(0, 3, 3, 4)])
    with pytest.raises(ValueError, match="one shape"):
        DeviceSnapshots(device, [])
    one = DeviceSnapshots(device, [crowded(0, 2, 3, 4)])
    with pytest.raises(ValueError, match=r"h is float32\[1, 5, 4\], not float32\[1, B, 3\]"):
        one.retrieve_rows(np.zeros((1, 5, 4), F32))
    with pytest.raises(ValueError, match="float64"):
        one.apply_rows(np.zeros((1, 5, 4)), np.zeros((1, 5), np.int32))
