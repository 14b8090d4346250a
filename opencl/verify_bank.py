"""The NumPy skill bank against its kernels, array by array: updates, retrieval, utility.

Every update starts from the definition's state; where float32 is exact, whole streams of many
observations and the lives of whole banks must end in the same bits too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from backtest.agent.bank import ABSTAIN, Bank
from backtest.agent.bank.retrieval import apply_rows, retrieve_rows
from backtest.agent.bank.rough import rough_rows
from backtest.agent.bank.utility import influence_of
from backtest.market.layout import Array
from opencl.bank import DeviceBank
from opencl.devices import Device
from opencl.differences import Row, compare
from opencl.retrieval import DeviceSnapshots

KINDS = ("direction_magnitude", "full")
BANKS, SLOTS, KEY_DIM, DIM = 3, 6, 70, 130  # not multiples of 64
ROWS, SINGLE, QUERIES = 240, 60, 301
EPISODES, STEPS = 4, 9
HURRIED = {
    "similarity_threshold": 0.5,
    "min_confirmations": 2,
    "protection_age": 2,
    "inactivity_age": 6,
    "candidate_ttl": 8,
    "utility_rule": "participation",
    "min_utility": -1.0,
}  # every decision within a short stream


def verify_bank(
    device: Device, kind: str, seed: int, tolerance: float, agreement: float
) -> Iterator[Row]:
    """Compare banks of one representation.

    Args:
        device: of `devices.select`.
        kind: of KINDS.
        seed: of observations.
        tolerance: of a float on a device whose float32 is not exact; 0: exact, every bit.
        agreement: least share of equal decisions on such a device.
    """
    for aggregate in (1, 3):
        what = f"skill bank, {kind}, {'cells of 3' if aggregate > 1 else 'single rows'}"
        banks = _banks(kind, aggregate)
        yield from _single_updates(device, banks[0], what, seed, tolerance, agreement)
        streams = [rough_rows(ROWS, KEY_DIM, DIM, seed + i) for i in range(BANKS)]
        h, g = (np.stack(rows) for rows in zip(*streams, strict=True))
        on_device = DeviceBank(device, banks)
        results = [b.update_rows(*rows) for b, *rows in zip(banks, h, g, strict=True)]
        if not tolerance:
            yield from _decisions(what, results, on_device.update_rows(h, g))
            yield from _arrays(what, banks, on_device.read())
        yield from _judged(device, banks, h, what, seed, tolerance, agreement)


def _banks(kind: str, aggregate: int) -> list[Bank]:
    parameters = HURRIED | {"representation": kind, "aggregate": aggregate, "aggregate_cells": 5}
    return [Bank(SLOTS, DIM, key_dim=KEY_DIM, **parameters) for _ in range(BANKS)]


def _copy(bank: Bank) -> Bank:
    made = Bank(bank.slots, bank.dim, key_dim=bank.key_dim, **bank.parameters)
    made.load_state_dict(bank.state_dict())
    return made


def _single_updates(
    device: Device, new: Bank, what: str, seed: int, tolerance: float, agreement: float
) -> Iterator[Row]:
    bank, before, after, results = _copy(new), [], [], []
    h, g = rough_rows(SINGLE, KEY_DIM, DIM, seed)
    for x, residual in zip(h, g, strict=True):
        before.append(_copy(bank))
        decision, slot = bank.update(x, residual)
        results.append((np.array([decision], np.int32), np.array([slot], np.int32)))
        after.append(_copy(bank))
    on_device = DeviceBank(device, before)  # one bank a row
    seen = on_device.update_rows(h[:, None], g[:, None])
    rows = list(_decisions(what, results, seen))
    if tolerance:
        yield from (_agreed(row, agreement) for row in rows)
        same = np.flatnonzero(seen[0][:, 0] == [r[0][0] for r in results])
        read = on_device.read()
        after, read = [after[i] for i in same], [read[i] for i in same]
    else:
        yield from rows
        read = on_device.read()
    yield from _arrays(what, after, read, tolerance)


def _decisions(
    what: str, results: Sequence[tuple[Array, Array]], seen: tuple[Array, Array]
) -> Iterator[Row]:
    for i, column in enumerate(("decision", "slot")):
        yield compare(what, column, np.stack([pair[i] for pair in results]), seen[i])


def _agreed(row: Row, agreement: float) -> Row:
    ok = row.different <= (1 - agreement) * row.values
    return Row(row.what, row.column, row.values, row.different, row.largest, ok)


def _arrays(
    what: str, banks: Sequence[Bank], seen: Sequence[Bank], tolerance: float = 0.0
) -> Iterator[Row]:
    expected, found = ([bank.state_dict() for bank in group] for group in (banks, seen))
    for name, array in expected[0].items():
        if array.size:  # no cells without aggregation
            mine, theirs = (np.stack([one[name] for one in group]) for group in (expected, found))
            yield compare(what, name, mine, theirs, tolerance)


def _judged(
    device: Device,
    banks: list[Bank],
    h: Array,
    what: str,
    seed: int,
    tolerance: float,
    agreement: float,
) -> Iterator[Row]:
    """Retrieval, corrections, influence and utility of banks that have learned."""
    draw = np.random.default_rng(seed)
    for bank in banks:
        bank.close_collection()
    on_device = DeviceBank(device, banks)
    snapshots = [bank.snapshot(explore=True) for bank in banks]
    held = DeviceSnapshots(device, snapshots)
    query = h[:, draw.integers(0, ROWS, QUERIES)]
    with np.errstate(invalid="ignore"):
        found = np.stack([retrieve_rows(s, x) for s, x in zip(snapshots, query, strict=True)])
    row = compare(what, "retrieved slot", found, held.retrieve_rows(query))
    yield _agreed(row, agreement) if tolerance else row
    hidden = draw.normal(0, 1, (BANKS, QUERIES, DIM)).astype(np.float32)
    corrected = np.stack(
        [apply_rows(s, x, f) for s, x, f in zip(snapshots, hidden, found, strict=True)]
    )
    yield compare(what, "corrected state", corrected, held.apply_rows(hidden, found), tolerance)

    shape = (BANKS, EPISODES * STEPS)
    before, after = draw.normal(0, 1, (2, *shape, DIM)).astype(np.float32)
    slots = draw.integers(ABSTAIN, SLOTS, shape).astype(np.int32)
    moved = on_device.influence_rows(snapshots, before, after, slots)
    pushes = [s.shift[np.maximum(f, 0)] for s, f in zip(snapshots, slots, strict=True)]
    expected = np.stack([influence_of(*one) for one in zip(before, after, pushes, strict=True)])
    expected = np.where(slots >= 0, expected, np.float32(0))
    yield compare(what, "influence of one use", expected, moved, tolerance)
    deltas = draw.uniform(-1, 1, (BANKS, EPISODES)).astype(np.float32)
    steps = (BANKS, EPISODES, STEPS)
    on_device.end_episodes(slots.reshape(steps), expected.reshape(steps), deltas)
    for i, bank in enumerate(banks):
        for at in range(EPISODES * STEPS):
            if slots[i, at] >= 0:
                bank.add_influence(int(slots[i, at]), float(expected[i, at]))
            if (at + 1) % STEPS == 0:
                bank.end_episode(float(deltas[i, at // STEPS]))
    yield from _arrays(f"{what}, judged", banks, on_device.read(), tolerance)
