"""Calendar windows: which bars lie between two ticks of a cron schedule.

A bar belongs to the window of its session date; where the market never closes, to the window of
the nanosecond before its close, so that a bar closed at midnight belongs to the day it traded in.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from backtest.cron import Cron, Days
from backtest.errors import ConfigError, DataError

Times = npt.NDArray[np.int64]  # ns since 1970, UTC, bar close
Sessions = npt.NDArray[np.int32]  # days since 1970 of the session date

DAY_NS = 86_400_000_000_000
# Two 29 Februaries are at most eight years apart: the longest step between ticks.
LONGEST_WINDOW = 8 * 366  # days


@dataclass(frozen=True)
class CalendarWindows:
    """Consecutive windows from the one that holds bar 0; window w owns [edges[w], edges[w+1])."""

    days: Days  # (w,) first day of each window, since 1970-01-01
    edges: npt.NDArray[np.int64]  # (w+1,) bars
    ended: int  # windows that no later bar can change
    whole_from: int  # first window that does not begin before the data: 0 or 1

    @property
    def keys(self) -> list[str]:
        """ISO date of the first day of each window."""
        return [iso(day) for day in self.days]


def calendar_windows(
    cron: str,
    time: Times | None,
    session: Sessions | None,
    *,
    always_open: bool,
    end: str | None = None,
) -> CalendarWindows:
    """Cut the bars at the ticks of `cron`.

    Args:
        cron: five fields, at most one tick a day, UTC.
        time: int64[n] bar closes, ns; read when `always_open`.
        session: int32[n] session dates, days since 1970; read unless `always_open`.
        always_open: a 24/7 market, whose bars are placed by `time`. Sessions are whole dates:
            for them the tick's time of day does not matter.
        end: ISO date at which the definition closes: its last window is the last one that ends
            at or before that date, and giving it asserts that no later bar of it will come.
            Without it the window of the last bar is the last one.

    Raises:
        ConfigError: a schedule that is not supported or never fires, `end` before any window.
        DataError: no bars, or bars out of order.
    """
    schedule = Cron.parse(cron)
    place = bar_places(time, session, always_open=always_open)
    scale = DAY_NS if always_open else 1
    offset = (schedule.hour * 60 + schedule.minute) * 60_000_000_000 if always_open else 0

    closing = parse_end(end)
    first_day, last_day = (int(p) // scale for p in (place[0], place[-1]))
    horizon = max(last_day, first_day if closing is None else closing) + LONGEST_WINDOW
    ticks = schedule.fires(first_day - LONGEST_WINDOW, horizon)
    if len(ticks) < 2:
        raise ConfigError(f"cron = {cron!r} never fires; no month has such a day")
    instants = ticks * scale + offset
    begin = int(np.searchsorted(instants, place[0], side="right")) - 1
    if closing is None:
        stop = int(np.searchsorted(instants, place[-1], side="right"))
    else:
        # a tick later in the day than 00:00 ends its window after `end`
        late = int(schedule.hour + schedule.minute > 0)
        stop = int(np.searchsorted(ticks, closing - late, side="right")) - 1
    if stop <= begin:
        raise ConfigError(
            f"end = {end!r} closes before the first window of cron = {cron!r} "
            f"({iso(ticks[begin])} to {iso(ticks[begin + 1])}); use a later date or leave it out"
        )
    edges = np.searchsorted(place, instants[begin : stop + 1]).astype(np.int64)
    # a bar in a later window shows that a window has ended; so does a close on its last instant
    ended = int(np.count_nonzero(edges[1:] < len(place)))
    if always_open and time is not None and ended < stop - begin:
        ended += int(time[-1] >= instants[begin + ended + 1])
    if closing is not None and edges[-2] < len(place):
        ended = stop - begin
    return CalendarWindows(
        days=ticks[begin:stop],
        edges=edges,
        ended=ended,
        whole_from=int(first_day > ticks[begin]),
    )


def bar_places(
    time: Times | None, session: Sessions | None, *, always_open: bool
) -> npt.NDArray[np.int64]:
    """Return what places a bar in a window: ns (24/7) or days (sessions), int64[n] ascending."""
    source = time if always_open else session
    name = "time" if always_open else "session"
    if source is None:
        raise ConfigError(f"windows of this market are cut by `{name}`: pass it")
    if len(source) == 0:
        raise DataError("there are no bars to cut into windows; ingest some first")
    place = source.astype(np.int64) - int(always_open)
    falls = np.flatnonzero(np.diff(place) < 0)
    if len(falls):
        raise DataError(f"{name} falls at bar {falls[0] + 1}; sort the bars by time first")
    return place


def parse_end(end: str | None) -> int | None:
    """Return the ISO date as days since 1970-01-01."""
    if end is None:
        return None
    try:
        return (datetime.date.fromisoformat(end) - datetime.date(1970, 1, 1)).days
    except ValueError:
        raise ConfigError(f"end = {end!r}: use an ISO date such as '2019-01-01'") from None


def iso(day: int | np.integer) -> str:
    """Return days since 1970-01-01 as an ISO date."""
    return str(np.datetime64(int(day), "D"))
