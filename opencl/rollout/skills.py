"""Snapshots of skill banks in the order that the kernels search them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from backtest.agent.bank.snapshot import Snapshot
from backtest.agent.kinds import Weights
from backtest.agent.scenario_layout import BALANCE, POSITION
from backtest.agent.scenario_weights import ScenarioWeights
from backtest.market.layout import N_PORTFOLIO, Array
from opencl.retrieval import lane_blocks, slot_tile
from opencl.rollout.packing import padded
from opencl.rollout.sizes import GUESS, SUM_LANES, Sizes

NO_ENTRY = np.array([0, 0, np.inf, -1], np.float32)


@dataclass(frozen=True)
class PolicySkills:
    """The banks of one policy, frozen for a rollout; None: no such bank."""

    task: Snapshot | None = None
    step: Snapshot | None = None


def task_banks(
    sizes: Sizes, policies: Sequence[Weights], skills: Sequence[PolicySkills | None]
) -> tuple[dict[str, Array], list[int]]:
    """Return the task banks of all policies by kernel argument, and each policy's bank or -1.

    Raises:
        ValueError: a bank holds more skills than the shape says, or has other dimensions.
    """
    places: dict[tuple[int, int], int] = {}
    bank_of, rows = [], []
    for w, given in zip(policies, skills, strict=True):
        snapshot = None if given is None else given.task
        if snapshot is None:
            bank_of.append(-1)
            continue
        key = (id(snapshot), id(w))
        if key not in places:
            places[key] = len(places)
            rows.append(_task_bank(sizes, cast("ScenarioWeights", w), snapshot))
        bank_of.append(places[key])
    if not rows:
        return {}, bank_of
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}, bank_of


def _task_bank(sizes: Sizes, w: ScenarioWeights, snapshot: Snapshot) -> dict[str, Array]:
    dim = sizes.shape.task_dim
    check(sizes, snapshot, "task", dim, dim)
    keys, entries = _live(sizes, snapshot, sizes.task_row)
    guess = _guess(w, snapshot, keys[:, :dim])
    if not sizes.group:  # search_lanes reads four keys at a time, lane after lane
        blocks = keys.reshape(-1, 4, sizes.task_row // SUM_LANES, SUM_LANES)
        keys = blocks.transpose(0, 3, 2, 1)
    return {
        "bank_keys": keys,
        "center": padded(snapshot.center, sizes.task_row),
        "entries": entries,
        "disagree": disagreement(sizes, snapshot),
        "shift": padded(snapshot.shift, sizes.slots, sizes.task_row),
        "guess": guess,
    }


def _guess(w: ScenarioWeights, snapshot: Snapshot, keys: Array) -> Array:
    """Return V, R and sizes of `guess_lanes`, float32[slots + GUESS + 1, GUESS].

    A centred task context is X u with u = (portfolio, calendar inputs, 1). V = keys X; R is the
    triangle of X = QR, so |X u| = |R u|; a size bounds what one column of X adds up from.
    """
    groups = (
        (BALANCE, w.Wq_balance, w.bq_balance),
        (POSITION, w.Wq_position, w.bq_position),
        (range(N_PORTFOLIO, GUESS - 1), w.Wq_calendar, w.bq_calendar),
    )
    blocks = []
    for columns, weight, bias in groups:
        block = np.zeros((len(bias), GUESS))
        block[:, list(columns)], block[:, -1] = weight, bias
        blocks.append(block)
    x = np.concatenate(blocks)
    sizes = np.linalg.norm(x, axis=0)
    sizes[-1] += np.linalg.norm(snapshot.center.astype(np.float64))
    x[:, -1] -= snapshot.center
    r = np.zeros((GUESS, GUESS))
    triangle = np.linalg.qr(x, mode="r")
    r[: len(triangle)] = triangle
    return np.concatenate([keys.astype(np.float64) @ x, r, sizes[None]]).astype(np.float32)


def step_bank(sizes: Sizes, snapshot: Snapshot, n_bar: int) -> dict[str, Array]:
    """Return a step bank by argument of `bar_search`; its keys are contexts or market features.

    Raises:
        ValueError: it holds more skills than the shape says, or has other dimensions.
    """
    dim = sizes.shape.step_dim
    check(sizes, snapshot, "step", dim if snapshot.keys.shape[1] == dim else n_bar, dim)
    width = SUM_LANES * -(-snapshot.keys.shape[1] // SUM_LANES)
    keys, entries = _live(sizes, snapshot, width)
    if sizes.group:
        keys = lane_blocks(keys[None], slot_tile(sizes.slots))
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
