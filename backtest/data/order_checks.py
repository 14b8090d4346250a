"""Defects of the order of rows: times that step back, times that occur twice."""

from __future__ import annotations

import numpy as np

from backtest.data.bars import Flags, Ints
from backtest.data.clock import moment
from backtest.data.issues import Findings
from backtest.data.raw import PRICES, RawBars


def increasing(raw: RawBars, findings: Findings) -> Ints:
    """Return the indices of the rows to keep, in strictly increasing order of their stamps.

    Rows are sorted for the checks whatever the policy says; an error is raised later, together
    with all others.
    """
    kept, stamp = np.arange(len(raw)), raw.stamp
    back = np.flatnonzero(np.diff(stamp) < 0) + 1
    if len(back):
        what = "rows are in descending order" if len(back) > 0.5 * len(raw) else "time steps back"
        first = back[0]
        policy = findings.decide(
            "unsorted",
            raw.row[back],
            f"{what}: {moment(stamp[first])} follows {moment(stamp[first - 1])}",
            kept="sorted",
            cure="sort the file",
        )
        if policy == "drop":
            kept = np.flatnonzero(stamp >= np.maximum.accumulate(stamp))
    kept = kept[np.argsort(stamp[kept], kind="stable")]

    first_of = np.ones(len(kept), bool)
    first_of[1:] = np.diff(stamp[kept]) > 0
    if first_of.all():
        return kept
    group = np.maximum.accumulate(np.where(first_of, np.arange(len(kept)), 0))
    same = identical(raw, kept, kept[group])
    for kind, rows in (("duplicate_identical", ~first_of & same), ("duplicate_conflicting", ~same)):
        if not rows.any():
            continue
        place = int(np.flatnonzero(rows)[np.argmin(raw.row[kept[rows]])])
        original = raw.row[kept[group[place]]]
        what = "repeats" if kind == "duplicate_identical" else "has the same time but differs from"
        findings.decide(
            kind,
            raw.row[kept[rows]],
            f"{moment(stamp[kept[place]])} {what} row {original}",
            kept=None,
            cure="remove all rows but one of a time,",
        )
    left: Ints = kept[first_of]
    return left


def identical(raw: RawBars, rows: Ints, others: Ints) -> Flags:
    """Return whether rows equal others in every column but time."""
    same: Flags = raw.roll[rows] == raw.roll[others]
    for name in (*PRICES, "volume"):
        column = getattr(raw, name)
        same &= column[rows] == column[others]
    return same
