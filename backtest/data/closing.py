"""From the stamps of a source to bar closes in UTC and session dates.

A date names a session and its close is the bar's time; a time of day names the bar's open unless
declared otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from backtest.config import Instrument
from backtest.data import spacing as spacings
from backtest.data.bars import Flags, Ints
from backtest.data.clock import check_zone, local, utc
from backtest.data.issues import Findings, listed
from backtest.data.raw import NO_TIME, RawBars
from backtest.data.session import ALWAYS, Calendar, calendar, zone
from backtest.data.spacing import Spacing
from backtest.data.stamp_text import DAY
from backtest.errors import DataError


@dataclass(frozen=True)
class Closes:
    """Times of bars.

    Attributes:
        time: int64[n], bar close, ns UTC.
        session: int64[n], days since 1970.
        inside: bool[n], the bar lies in a session of the calendar.
        spacing: distance of the bars.
        calendar: the sessions around the data.
    """

    time: Ints
    session: Ints
    inside: Flags
    spacing: Spacing
    calendar: Calendar


def unified(raw: RawBars, instrument: Instrument, findings: Findings) -> tuple[RawBars, bool]:
    """Return the rows with stamps that can be sorted, and whether they are dates.

    Dates are midnights of the session date; all other stamps become UTC. A wall clock reading
    that was skipped or repeated when clocks changed is a problem that names its row, and the row
    is left out. Rows without a time keep NO_TIME.
    """
    layout, key = instrument.csv, findings.key("csv.timezone")
    check_zone(layout.timezone, key)
    known = raw.stamp != NO_TIME
    dates = None if raw.closes else session_dates(raw.stamp[known], raw, instrument)
    if dates is not None:
        if not raw.dated:
            findings.assume("midnight_stamps", "every time is a midnight: read as session dates")
        return restamped(raw, known, dates * DAY), True
    if raw.zoned or raw.closes:
        return raw, False
    if "timezone" not in layout.model_fields_set:
        findings.assume("assumed_timezone", f"times are read as UTC; else set {key}")
    time, skipped, repeated = utc(raw.stamp[known], layout.timezone)
    for wrong, what in ((skipped, "never happened"), (repeated, "happened twice")):
        rows = raw.row[known][wrong]
        if len(rows):
            findings.problem(
                f"row {rows[0]}: this time of day {what} in {layout.timezone}, where clocks "
                f"changed{listed(rows)}; export the file in UTC, or correct {key}"
            )
    usable = np.ones(len(raw), bool)
    usable[known] = ~(skipped | repeated)
    return restamped(raw, known, time).take(usable), False


def restamped(raw: RawBars, known: Flags, stamp: Ints) -> RawBars:
    """Return the rows with new stamps where the time is known."""
    stamps = raw.stamp.copy()
    stamps[known] = stamp
    return replace(raw, stamp=stamps)


def session_dates(stamp: Ints, raw: RawBars, instrument: Instrument) -> Ints | None:
    """Return days since 1970 if the stamps name dates: no time of day, or midnight throughout.

    Midnight counts on the source's clock, in the declared time zone, or on the exchange's.
    """
    if raw.dated:
        return stamp // DAY
    if instrument.calendar == ALWAYS and instrument.csv.stamp == "close":
        return None  # midnight is then really the end of the day before
    zones = (instrument.csv.timezone, zone(instrument.calendar)) if raw.zoned else ()
    for name in ("UTC", *zones):
        clock = local(stamp, name)
        if not (clock % DAY).any():
            return clock // DAY
    return None


def closes(
    stamp: Ints,
    spacing: Spacing,
    dated: bool,
    instrument: Instrument,
    findings: Findings,
    *,
    closed: bool = False,
) -> Closes:
    """Return the times of bars with increasing stamps.

    Args:
        stamp: int64[n] from `unified`, increasing.
        spacing: from `bar_spacing`.
        dated: whether stamps are session dates.
        instrument: declares calendar and csv.stamp.
        findings: receives the assumptions.
        closed: stamps are bar closes already.

    Raises:
        DataError: dates the calendar does not cover, or dates for bars within the day.
    """
    if "calendar" not in instrument.model_fields_set:
        findings.assume(
            "assumed_calendar",
            f"sessions are every UTC day ({ALWAYS}); else set {findings.key('calendar')}",
        )
    edge = end_named(dated, instrument, findings, closed=closed)
    if dated and spacing.intraday:
        raise DataError(
            f"{findings.key('bar')} = {spacing}, but no time has a time of day; "
            f"correct the declaration or export the times"
        )
    first, last = stamp[0] // DAY - 1, spacing.after(stamp[-1:] // DAY)[0] + 1
    sessions = calendar(instrument.calendar, int(first), int(last))
    if closed or spacing.intraday:
        time = stamp if edge == "close" else ends(stamp, spacing, sessions)
        session, inside = sessions.session_of(time)
        return Closes(time, session, inside, spacing, sessions)

    # Daily and slower: the bar ends with the session it names.
    if dated:
        date = stamp // DAY
    elif instrument.calendar == ALWAYS:
        date = stamp // DAY if edge == "open" else (stamp - 1) // DAY
    else:
        date, _ = sessions.session_of(stamp, stamp=edge)
    named = spacing.after(date) - 1 if edge == "open" else date
    if not dated and instrument.calendar == ALWAYS:
        time = stamp if edge == "close" else spacing.after(date) * DAY + stamp % DAY
        return Closes(time, (time - 1) // DAY, np.ones(len(time), bool), spacing, sessions)
    index, inside = sessions.place(named)
    if spacing.unit != "d":  # the last session of the week or month
        named = sessions.date[np.where(inside, index, index - 1)].astype(np.int64)
        inside = np.ones(len(named), bool)
    return Closes(sessions.close_of(named), named, inside, spacing, sessions)


def bar_spacing(raw: RawBars, instrument: Instrument, findings: Findings) -> Spacing:
    """Return the declared spacing, or the one derived from all rows with a time, with a note.

    Raises:
        DataError: neither declared nor regular.
    """
    key = findings.key("bar")
    if instrument.bar is not None:
        return spacings.declared(instrument.bar, key)
    stamp, first = raw.stamp, np.arange(len(raw))
    if (stamp == NO_TIME).any() or not (np.diff(stamp) > 0).all():
        stamp, first = np.unique(stamp, return_index=True)
        stamp, first = stamp[stamp != NO_TIME], first[stamp != NO_TIME]
    spacing = spacings.derived(stamp, raw.row[first], key)
    findings.assume("assumed_bar", f"bars are {spacing} apart, as most of them are; else set {key}")
    return spacing


def end_named(dated: bool, instrument: Instrument, findings: Findings, *, closed: bool) -> str:
    """Return which end of the bar the stamps name, with a note when nothing declares it."""
    if closed:
        return "close"
    if instrument.csv.stamp is not None:
        return instrument.csv.stamp
    edge = "close" if dated else "open"
    what = "dates name the session that closes" if dated else "times name the open of the bar"
    findings.assume(
        "assumed_stamp", f"{what} (stamp = {edge}); else set {findings.key('csv.stamp')}"
    )
    return edge


def ends(stamp: Ints, spacing: Spacing, sessions: Calendar) -> Ints:
    """Return the ends of bars that open at `stamp`.

    The last bar of a session ends with it: an hourly bar that opens at 15:30 ends at 16:00 where
    trading stops at 16:00. Where the next session begins at once nothing is cut.
    """
    end = stamp + spacing.ns
    index = np.minimum(
        np.searchsorted(sessions.close, stamp, side="right"), len(sessions.close) - 1
    )
    close = sessions.close[index]
    following = sessions.open[np.minimum(index + 1, len(sessions.open) - 1)]
    cut = (sessions.open[index] <= stamp) & (stamp < close) & (close < end) & (following > close)
    return np.where(cut, close, end)
