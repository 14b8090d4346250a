"""Snapshots of skill banks in the order that the kernels search them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backtest.agent.bank.snapshot import Snapshot
from backtest.market.layout import Array
from opencl.rollout.packing import distinct, padded
from opencl.rollout.sizes import SUM_LANES, Sizes

NO_ENTRY = np.array([0, 0, np.inf, -1], np.float32)


@dataclass(frozen=True)
class PolicySkills:
    """The banks of one policy, frozen for a rollout; None: no such bank."""

    task: Snapshot | None = None
    step: Snapshot | None = None


def task_banks(
    sizes: Sizes, skills: Sequence[PolicySkills | None]
) -> tuple[dict[str, Array], list[int]]:
    """Return the task banks of all policies by kernel argument, and each policy's bank or -1.

    Raises:
        ValueError: a bank holds more skills than the shape says, or has other dimensions.
    """
    found = [given.task if given is not None else None for given in skills]
    present = [snapshot for snapshot in found if snapshot is not None]
    first, place = distinct(present)
    own = iter(place)
    bank_of = [-1 if snapshot is None else next(own) for snapshot in found]
    rows = []
    for i in first:
        snapshot, dim = present[i], sizes.shape.task_dim
        check(sizes, snapshot, "task", dim, dim)
        keys, entries = _live(sizes, snapshot, sizes.task_row)
        if not sizes.group:  # search_lanes reads four keys at a time, lane after lane
            blocks = keys.reshape(-1, 4, sizes.task_row // SUM_LANES, SUM_LANES)
            keys = blocks.transpose(0, 3, 2, 1)
        rows.append(
            {
                "bank_keys": keys,
                "center": padded(snapshot.center, sizes.task_row),
                "entries": entries,
                "disagree": disagreement(sizes, snapshot),
                "shift": padded(snapshot.shift, sizes.slots, sizes.task_row),
            }
        )
    if not rows:
        return {}, bank_of
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}, bank_of


def step_bank(sizes: Sizes, snapshot: Snapshot, n_bar: int) -> dict[str, Array]:
    """Return a step bank by argument of `bar_search`; its keys are contexts or market features.

    Raises:
        ValueError: it holds more skills than the shape says, or has other dimensions.
    """
    dim = sizes.shape.step_dim
    check(sizes, snapshot, "step", dim if snapshot.keys.shape[1] == dim else n_bar, dim)
    width = SUM_LANES * -(-snapshot.keys.shape[1] // SUM_LANES)
    keys, entries = _live(sizes, snapshot, width)
    return {
        "keys": keys,
        "center": padded(snapshot.center, width),
        "entries": entries,
        "disagree": disagreement(sizes, snapshot),
        "shift": np.ascontiguousarray(snapshot.shift, np.float32),
    }


def check(sizes: Sizes, snapshot: Snapshot, bank: str, most: int, dim: int) -> None:
    """Refuse a snapshot that does not fit the network.

    Raises:
        ValueError: says what differs.
    """
    slots, key_dim = snapshot.keys.shape
    if slots > sizes.shape.slots:
        raise ValueError(
            f"a {bank} bank of {slots} slots in a rollout made for {sizes.shape.slots}; "
            "Shape.slots says how many a bank may hold"
        )
    exact = bank == "task" or most == dim
    if (key_dim != most if exact else key_dim > most) or snapshot.shift.shape[1] != dim:
        raise ValueError(
            f"a {bank} bank with keys of {key_dim} and corrections of {snapshot.shift.shape[1]} "
            f"dimensions; the network's {bank} context has {dim}"
        )


def _live(sizes: Sizes, snapshot: Snapshot, width: int) -> tuple[Array, Array]:
    """Return the keys [slots, width] and entries [slots, 4] of the slots that may be retrieved.

    An entry is (norm of the key, bonus, threshold, slot); slots stay in order, so ties do too.
    """
    live = np.flatnonzero(snapshot.eligible)
    keys = padded(snapshot.keys[live], sizes.slots, width)
    entries = np.tile(NO_ENTRY, (sizes.slots, 1))
    entries[: len(live), 0] = snapshot.norms[live]
    entries[: len(live), 1] = snapshot.bonus[live]
    entries[: len(live), 2] = snapshot.threshold
    entries[: len(live), 3] = live
    return keys, entries


def disagreement(sizes: Sizes, snapshot: Snapshot) -> Array:
    """Return the pairs of slots whose directions disagree, uint8[slots, slots]."""
    out = np.zeros((sizes.slots, sizes.slots), np.uint8)
    n = len(snapshot.disagree)
    out[:n, :n] = snapshot.disagree
    return out
