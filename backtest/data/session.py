"""Trading sessions: which one a bar belongs to, when it closes, how many there are in a year.

Calendars come from `exchange_calendars`; "24/7" is every UTC day.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from backtest.data.bars import Days, Flags, Ints
from backtest.data.clock import local
from backtest.data.spacing import Spacing
from backtest.data.stamp_text import DAY
from backtest.errors import ConfigError, DataError

ALWAYS = "24/7"
# Sessions are counted over these whole years, so that a figure never moves with the data's end.
COUNTED = ("2019-01-01", "2023-12-31")
COUNTED_YEARS = 5
MARGIN = 15  # days around the data, longer than any closure that could hide a neighbour


@dataclass(frozen=True)
class Calendar:
    """Sessions of a span of dates.

    Attributes:
        name: of exchange_calendars, or 24/7.
        zone: IANA name of the exchange's time zone.
        date: int32[s], session dates as days since 1970, increasing.
        open: int64[s], ns UTC.
        close: int64[s], ns UTC.
        break_start: int64[s], ns UTC; equal to `break_stop` where there is no break.
        break_stop: int64[s], ns UTC.
    """

    name: str
    zone: str
    date: Days
    open: Ints
    close: Ints
    break_start: Ints
    break_stop: Ints

    def place(self, date: Ints) -> tuple[Ints, Flags]:
        """Return the index of the first session at or after each date, and whether it is it."""
        index = np.minimum(np.searchsorted(self.date, date), len(self.date) - 1)
        return index, self.date[index] == date

    def close_of(self, date: Ints) -> Ints:
        """Return the close of the session of each date, ns UTC.

        A date without a session closes when the session before it closed, as time of day.
        """
        index, there = self.place(date)
        before = np.maximum(np.where(there, index, index - 1), 0)
        return self.close[before] + (date - self.date[before]) * DAY

    def session_of(self, time: Ints, *, stamp: str = "close") -> tuple[Ints, Flags]:
        """Return the session date of each bar and whether the bar lies inside it.

        A bar closing at t is inside when open < t <= close; one opening at t when
        open <= t < close. A bar outside belongs to its local date if that is a session, else to
        the next session.
        """
        index = np.searchsorted(self.close, time, side="left" if stamp == "close" else "right")
        index = np.minimum(index, len(self.close) - 1)
        if stamp == "close":
            inside = (self.open[index] < time) & (time <= self.close[index])
        else:
            inside = (self.open[index] <= time) & (time < self.close[index])
        date = self.date[index].astype(np.int64)
        if inside.all():
            return date, inside
        today = local(time - (stamp == "close"), self.zone) // DAY
        _, is_session = self.place(today)
        return np.where(~inside & is_session, today, date), inside


def calendar(name: str, first: int, last: int) -> Calendar:
    """Return the sessions of days [first, last] since 1970; exchanges with a margin.

    Raises:
        ConfigError: no calendar of that name.
        DataError: the calendar does not reach that far.
    """
    if name == ALWAYS:
        date = np.arange(first, last + 1, dtype=np.int32)
        opens = date.astype(np.int64) * DAY
        return Calendar(name, "UTC", date, opens, opens + DAY, opens, opens)
    years = iso(first - MARGIN)[:4], iso(last + MARGIN)[:4]
    try:  # whole years, so that other spans find them made
        found = exchange(name, f"{years[0]}-01-01", f"{years[1]}-12-31")
    except DataError:  # the calendar may begin with the data
        found = exchange(name, iso(first), iso(last))
    opens, closes = nanoseconds(found.opens), nanoseconds(found.closes)
    starts, stops = nanoseconds(found.break_starts), nanoseconds(found.break_ends)
    pause = starts != np.iinfo(np.int64).min  # NaT: a session without a break
    return Calendar(
        name,
        str(found.tz),
        (nanoseconds(found.sessions) // DAY).astype(np.int32),
        opens,
        closes,
        np.where(pause, starts, opens),
        np.where(pause, stops, opens),
    )


def iso(day: int) -> str:
    """Return a day since 1970 as YYYY-MM-DD."""
    return str(np.datetime64(day, "D"))


def nanoseconds(times: Any) -> Ints:
    """Return a pandas index or series of times as int64[n] ns since 1970 UTC."""
    values = times.to_numpy(dtype="datetime64[ns]")
    return np.asarray(values).astype(np.int64)


def zone(name: str) -> str:
    """Return the IANA time zone of a calendar."""
    return "UTC" if name == ALWAYS else str(exchange(name, *COUNTED).tz)


@lru_cache(maxsize=16)
def exchange(name: str, start: str, end: str) -> Any:
    """Return the calendar of `exchange_calendars` for ISO dates [start, end]."""
    import exchange_calendars
    from exchange_calendars import errors

    try:
        return exchange_calendars.get_calendar(name, start=start, end=end)
    except errors.InvalidCalendarName:
        raise ConfigError(
            f"calendar = {name!r}: no such exchange calendar; use 24/7, XNYS, CMES or another "
            f"name of the package exchange_calendars"
        ) from None
    except (errors.CalendarError, ValueError) as error:
        raise DataError(f"calendar {name} does not cover {start} to {end}: {error}") from None


def sessions_per_year(name: str) -> float:
    """Return the mean number of sessions a year: 365 for 24/7, else counted 2019 to 2023."""
    if name == ALWAYS:
        return 365.0
    return len(exchange(name, *COUNTED).sessions) / COUNTED_YEARS


def bars_per_year(name: str, spacing: Spacing) -> float:
    """Return the mean number of bars a year.

    Bars inside the day: open time of the sessions counted 2019 to 2023 (breaks excluded) over
    the spacing. XNYS in 15 minutes: 251.6 sessions of 25.9 bars.
    """
    if spacing.per_year is not None:
        return spacing.per_year
    if spacing.unit == "d":
        return sessions_per_year(name) / spacing.count
    if name == ALWAYS:
        return 365.0 * DAY / spacing.ns
    first, last = np.array(COUNTED, "datetime64[D]").astype(np.int64)
    span = calendar(name, int(first), int(last))
    inside = (span.date >= first) & (span.date <= last)
    seconds = span.close - span.open - (span.break_stop - span.break_start)
    return float(seconds[inside].sum() / spacing.ns / COUNTED_YEARS)
