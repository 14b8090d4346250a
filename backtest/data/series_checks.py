"""What the finished series shows: gaps, jumps, stale prices, volumes and prices worth a word."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from backtest.data.bars import Flags, Floats, Ints
from backtest.data.closing import Closes
from backtest.data.issues import Findings
from backtest.data.raw import RawBars
from backtest.data.session import ALWAYS
from backtest.data.spacing import duration

JUMP = 0.4  # fraction of the close before
BAD_TICKS = 3  # bars in a row that may be one excursion; a longer one is a new level
# Closes that do not move. In an illiquid minute every second close may repeat: 20 in a row then
# happen by chance once in 2^19 bars. A day's close repeats in at most 2 % of the days: 5 in a
# row happen once in six million days.
STALE_RUN = {True: 20, False: 5}  # inside the day, daily or slower


def check_series(
    raw: RawBars,
    closes: Closes,
    *,
    adjustable: bool,
    volume_known: bool,
    findings: Findings,
) -> Flags:
    """Apply the policies of the series and return which bars to keep, bool[n].

    Args:
        raw: the bars, increasing in time.
        closes: their times and sessions.
        adjustable: a jump is an error unless declared otherwise.
        volume_known: whether a volume of zero means anything.
        findings: receives issues and errors.
    """
    row, close, roll = raw.row, raw.close, raw.roll
    keep = np.ones(len(raw), bool)
    check_sessions(closes, row, findings)
    check_gaps(closes, row, findings)
    check_jumps(close, roll, row, keep, adjustable, findings)
    check_stale(close, row, keep, closes.spacing.intraday, findings)
    negative, lowest = raw.low < 0, f"{raw.low.min():.10g} is the lowest price"
    take(negative, row, keep, "negative_price", lowest, findings)
    if volume_known and raw.volume is not None:
        zero = raw.volume == 0
        take(zero, row, keep, "zero_volume", "volume 0: nothing can be filled", findings)
    if roll.any():
        findings.note("roll", row[roll], f"row {row[roll][0]}: first of {roll.sum():,} rolls")
    return keep


def take(rows: Flags, row: Ints, keep: Flags, kind: str, what: str, findings: Findings) -> None:
    """Decide on the bars of one kind; drop them from `keep` where the policy says so."""
    if rows.any() and findings.decide(kind, row[rows], what) == "drop":
        keep &= ~rows


def check_sessions(closes: Closes, row: Ints, findings: Findings) -> None:
    """Bars that lie in no session of the calendar: pre- and post-market, or a wrong calendar."""
    outside = ~closes.inside
    if outside.any():
        findings.note(
            "outside_session",
            row[outside],
            f"row {row[outside][0]}: outside the sessions of {closes.calendar.name}, like "
            f"{outside.sum():,} of {len(row):,} bars",
        )


def check_gaps(closes: Closes, row: Ints, findings: Findings) -> None:
    """Sessions without a bar, and within sessions distances longer than the spacing."""
    spacing, sessions = closes.spacing, closes.calendar
    if spacing.intraday or str(spacing) == "1d":
        there = (sessions.date >= closes.session[0]) & (sessions.date <= closes.session[-1])
        expected = sessions.date[there].astype(np.int64)
        missing = np.setdiff1d(expected, closes.session)
        if len(missing):
            after = np.searchsorted(closes.session, missing, side="right") - 1
            first = np.datetime64(int(missing[0]), "D")
            gap(
                "missing_session" if spacing.intraday else "gap",
                row[after],
                f"followed by {first}, a session of {sessions.name} without a bar; "
                f"{len(missing):,} such sessions",
                findings,
            )
    if not spacing.intraday:
        return
    distance = np.diff(closes.time)
    cut = closes.time == sessions.close_of(closes.session)  # the last bar may be shorter
    close = np.flatnonzero((distance < spacing.ns) & ~cut[1:]) + 1
    if len(close):
        what = f"row {row[close[0]]}: closer than {spacing} to the bar before it"
        findings.note("irregular", row[close], f"{what}, like {len(close):,} bars")
    if sessions.name != ALWAYS:
        distance = distance - breaks(closes)
        distance[np.diff(closes.session) != 0] = 0
    gaps = np.flatnonzero(distance > spacing.ns)
    if len(gaps):
        lost = int((distance[gaps] // spacing.ns - 1).sum())
        gap(
            "gap",
            row[gaps],
            f"followed by a gap; {len(gaps):,} gaps, about {lost:,} bars of {spacing} missing, "
            f"longest {duration(distance[gaps].max())} after row "
            f"{row[gaps[np.argmax(distance[gaps])]]}",
            findings,
        )


def breaks(closes: Closes) -> Ints:
    """Return the length of the midday break between each bar and the next, ns."""
    sessions = closes.calendar
    index, _ = sessions.place(closes.session[1:])
    spans = (closes.time[:-1] <= sessions.break_start[index]) & (
        closes.time[1:] > sessions.break_stop[index]
    )
    return np.where(spans, sessions.break_stop[index] - sessions.break_start[index], 0)


def gap(kind: str, rows: Ints, what: str, findings: Findings) -> None:
    """Report gaps; there is nothing to drop, so that policy means error."""
    policy = "error" if findings.policies.gap == "drop" else findings.policies.gap
    if policy == "keep":
        findings.note(kind, rows, f"row {rows[0]}: {what}")
    else:
        findings.problem(
            f"row {rows[0]}: {what}; fetch the missing bars or set {findings.key('issues.gap')} "
            f'= "keep"'
        )


def check_jumps(
    close: Floats, roll: Flags, row: Ints, keep: Flags, adjustable: bool, findings: Findings
) -> None:
    """Closes that move by more than 40 % without a roll, where both prices are positive."""
    jumps = far(close[1:], close[:-1]) & ~roll[1:]
    places = np.flatnonzero(jumps) + 1
    if not len(places):
        return
    policy = findings.policies.jump or ("error" if adjustable else "keep")
    first = places[0]
    what = (
        f"close moves {close[first] / close[first - 1] - 1:+.1%} from {close[first - 1]:.10g} to "
        f"{close[first]:.10g} without an action flag"
    )
    if policy != "drop":
        findings.decide("jump", row[places], what, policy=policy, cure="adjust prices for splits")
        return
    bad: list[int] = []
    for place in places:
        if bad and place <= bad[-1] + 1:
            continue  # the return from an excursion already dropped
        back = place
        while back < len(close) and back < place + BAD_TICKS and far(close[back], close[place - 1]):
            back += 1
        if back == len(close) or far(close[back], close[place - 1]):
            findings.problem(
                f"row {row[place]}: close moves to {close[place]:.10g} and stays there: no bad "
                f"tick to drop but a new level; adjust the prices or set "
                f'{findings.key("issues.jump")} = "keep"'
            )
            return
        bad += range(place, back)
    findings.decide("jump", row[bad], what, policy="drop")
    keep[bad] = False


def far(close: npt.ArrayLike, before: npt.ArrayLike) -> Flags:
    """Return whether two positive prices differ by more than the jump limit."""
    now, old = np.asarray(close, np.float64), np.asarray(before, np.float64)
    positive = (now > 0) & (old > 0)
    return positive & (np.abs(now - old) > JUMP * old)


def check_stale(close: Floats, row: Ints, keep: Flags, intraday: bool, findings: Findings) -> None:
    """Runs of identical closes that are too long to be chance; "drop" leaves their first bar."""
    limit = STALE_RUN[intraday]
    starts = np.flatnonzero(np.concatenate([[True], close[1:] != close[:-1]]))
    lengths = np.diff(np.append(starts, len(close)))
    long = lengths >= limit
    if not long.any():
        return
    rows = np.repeat(long, lengths)
    rows[starts] = False
    longest = int(np.argmax(lengths))
    take(
        rows,
        row,
        keep,
        "stale",
        f"the close repeats the one before; runs of {limit} or more equal closes: {long.sum():,}, "
        f"longest {lengths[longest]:,} from row {row[starts[longest]]}",
        findings,
    )
