"""Defects of single rows: cells that cannot be read, no number, all zeros, impossible prices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from backtest.data.bars import Flags, Floats
from backtest.data.issues import Findings
from backtest.data.raw import NO_TIME, PRICES, RawBars

UNKNOWN_VOLUME = 0.99  # above this share of empty or zero volumes they carry no information


def check_rows(raw: RawBars, findings: Findings) -> tuple[RawBars, bool]:
    """Apply the policies of row defects.

    A row counts for the first kind it fits. Rows to drop and rows in error are left out of the
    result, so that they set off no later check.

    Returns:
        The remaining rows, volume filled in, and whether the volume is known.
    """
    left = np.ones(len(raw), bool)
    check_unreadable(raw, left, findings)
    volume, known = volumes(raw, left, findings)
    check_finite(raw, volume, left, findings)
    zero = left.copy()
    for name in PRICES:
        zero &= getattr(raw, name) == 0
    take(zero, left, raw, "all_zero", "all prices are 0", findings)
    negative = left & (volume < 0)
    if negative.any():
        what = f"volume {volume[np.argmax(negative)]:g} is negative"
        take(
            negative,
            left,
            raw,
            "negative_volume",
            what,
            findings,
            setting="ohlc_inconsistent",
            kept="volume set to 0",
        )
        volume[negative] = 0
    check_order_of_prices(raw, left, findings)

    return replace(raw, volume=volume, unreadable=()).take(left), known


def take(
    rows: Flags,
    left: Flags,
    raw: RawBars,
    kind: str,
    what: str,
    findings: Findings,
    *,
    setting: str | None = None,
    kept: str | None = "kept",
) -> None:
    """Decide on the rows of one kind and take them out of `left` unless they are kept."""
    if not rows.any():
        return
    policy = findings.decide(kind, raw.row[rows], what, setting=setting, kept=kept)
    if policy != "keep":
        left &= ~rows


def check_unreadable(raw: RawBars, left: Flags, findings: Findings) -> None:
    """Rows with cells that cannot be read, or with a wrong number of columns."""
    if not raw.unreadable:
        return
    rows = np.array([damage.row for damage in raw.unreadable], np.int64)
    first = raw.unreadable[int(np.argmin(rows))]
    rows = np.unique(rows)
    findings.decide("unreadable", rows, first.what, setting="not_finite", kept=None)
    left &= ~np.isin(raw.row, rows)


def volumes(raw: RawBars, left: Flags, findings: Findings) -> tuple[Floats, bool]:
    """Return the volume of every row, and whether it is known at all."""
    if raw.volume is None:
        findings.note("volume_unknown", [], "there is no volume column: volumes are unknown")
        return np.zeros(len(raw)), False
    nothing = left & ((raw.volume == 0) | np.isnan(raw.volume))
    share = nothing.sum() / max(1, left.sum())
    if share <= UNKNOWN_VOLUME:
        return raw.volume.copy(), True
    findings.note(
        "volume_unknown",
        raw.row[nothing],
        f"volume is 0 or empty on {share:.1%} of the rows: volumes are unknown",
    )
    return np.where(np.isnan(raw.volume), 0.0, raw.volume), False


def check_finite(raw: RawBars, volume: Floats, left: Flags, findings: Findings) -> None:
    """Rows without a time, a price or a volume that is a number."""
    rule = {"setting": "not_finite"}
    no_time = left & (raw.stamp == NO_TIME)
    take(no_time, left, raw, "no_time", "the time is empty", findings, kept=None, **rule)
    wrong = np.zeros(len(raw), bool)
    for name in PRICES:
        wrong |= ~np.isfinite(getattr(raw, name))
    wrong &= left
    if wrong.any():
        cells = {name: getattr(raw, name)[np.argmax(wrong)] for name in PRICES}
        shown = ", ".join(f"{n} is {empty(p)}" for n, p in cells.items() if not np.isfinite(p))
        take(wrong, left, raw, "not_finite", shown, findings, kept=None)
    wrong = left & ~np.isfinite(volume)
    if wrong.any():
        shown = f"volume is {empty(volume[np.argmax(wrong)])}"
        take(wrong, left, raw, "no_volume", shown, findings, kept="volume set to 0", **rule)
        volume[wrong] = 0


def check_order_of_prices(raw: RawBars, left: Flags, findings: Findings) -> None:
    """Rows whose high is not the highest, or whose low is not the lowest price."""
    high_of = np.maximum(np.maximum(raw.open, raw.close), raw.low)
    low_of = np.minimum(np.minimum(raw.open, raw.close), raw.high)
    wrong = left & ((raw.high < high_of) | (raw.low > low_of))
    if not wrong.any():
        return
    first = int(np.argmax(wrong))
    bar = {name: float(getattr(raw, name)[first]) for name in PRICES}
    if bar["high"] < high_of[first]:
        other = max(("open", "close", "low"), key=bar.__getitem__)
        what = f"high {bar['high']:.10g} is below {other} {bar[other]:.10g}"
    else:
        other = min(("open", "close"), key=bar.__getitem__)
        what = f"low {bar['low']:.10g} is above {other} {bar[other]:.10g}"
    take(wrong, left, raw, "ohlc_inconsistent", what, findings)


def empty(value: float) -> str:
    """Return how a value that is not finite is called in a message."""
    return "empty or NaN" if np.isnan(value) else f"{value:g}"
