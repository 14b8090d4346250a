"""The distance between bars: declared such as "15min", or derived from the data, never assumed."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from backtest.data.bars import Ints
from backtest.data.stamp_text import DAY, SECOND
from backtest.errors import ConfigError, DataError

UNITS = {"s": SECOND, "min": 60 * SECOND, "h": 3600 * SECOND, "d": DAY, "w": 7 * DAY, "mo": 0}
PER_YEAR = {"w": 365.25 / 7, "mo": 12.0}


@dataclass(frozen=True)
class Spacing:
    """So many units from bar to bar; days are sessions, weeks and months are calendar ones."""

    count: int
    unit: str

    def __str__(self) -> str:
        return f"{self.count}{self.unit}"

    @property
    def ns(self) -> int:
        """Length in ns; 0 for months."""
        return self.count * UNITS[self.unit]

    @property
    def intraday(self) -> bool:
        """Whether several bars fit into one session."""
        return self.unit in ("s", "min", "h")

    @property
    def per_year(self) -> float | None:
        """Bars a year where that does not depend on the sessions: weeks and months."""
        return PER_YEAR[self.unit] / self.count if self.unit in PER_YEAR else None

    def after(self, date: Ints) -> Ints:
        """Return the dates one spacing of days, weeks or months after the given days."""
        if self.unit != "mo":
            return date + self.ns // DAY
        month = date.astype("datetime64[D]").astype("datetime64[M]")
        day = date - first_day(month)
        target, beyond = first_day(month + self.count), first_day(month + self.count + 1)
        return np.minimum(target + day, beyond - 1)


def first_day(month: npt.NDArray[np.datetime64]) -> Ints:
    """Return the first day of months, as days since 1970."""
    return month.astype("datetime64[D]").astype(np.int64)


def declared(text: str, key: str) -> Spacing:
    """Return the spacing of a text such as 1min, 4h, 1d, 1w, 1mo.

    Raises:
        ConfigError: anything else.
    """
    match = re.fullmatch(r"([1-9]\d{0,5})(s|min|h|d|w|mo)", text)
    if not match:
        raise ConfigError(f"{key} = {text!r}: give a number and one of {', '.join(UNITS)}")
    spacing = Spacing(int(match[1]), match[2])
    if spacing.intraday and spacing.ns >= DAY:
        raise ConfigError(f"{key} = {text!r}: a day or longer; use d, w or mo")
    return spacing


def derived(stamp: Ints, row: Ints, key: str) -> Spacing:
    """Return the most frequent distance of increasing stamps (ns), checked.

    It must be that of at least half of all bars, and inside the day no two bars may be closer.
    Dates are daily as soon as two of them follow each other.

    Raises:
        DataError: too few bars, or irregular ones such as volume bars or months.
    """
    cure = f'declare {key}, such as "1min", "1d" or "1mo"'
    if len(stamp) < 2:
        raise DataError(f"the spacing of {len(stamp)} bars is unknown; {cure}")
    distances, counts = np.unique(np.diff(stamp), return_counts=True)
    usual = int(distances[np.argmax(counts)])
    if distances[0] == DAY and not (stamp % DAY).any():
        return Spacing(1, "d")
    if 2 * counts.max() >= counts.sum():
        # closes and daylight saving move daily stamps by hours
        for unit, tolerance in (("d", DAY // 8), ("w", DAY)):
            if abs(usual - UNITS[unit]) < tolerance:
                return Spacing(1, unit)
        if usual < DAY and usual % SECOND == 0:
            if usual == distances[0]:
                return of_seconds(usual // SECOND)
            close = int(np.argmin(np.diff(stamp)))
            raise DataError(
                f"row {row[close + 1]}: closer to the bar before it ({duration(distances[0])}) "
                f"than bars usually are ({duration(usual)}), so the spacing is unknown; {cure}"
            )
    raise DataError(
        f"the spacing is unknown: the most frequent distance, {duration(usual)}, is that of "
        f"{counts.max():,} of {counts.sum():,} bars; {cure}"
    )


def of_seconds(seconds: int) -> Spacing:
    """Return a spacing within the day in the largest unit that is whole."""
    for unit in ("h", "min"):
        whole, rest = divmod(seconds * SECOND, UNITS[unit])
        if not rest:
            return Spacing(whole, unit)
    return Spacing(seconds, "s")


def duration(ns: int) -> str:
    """Return a length of time for people, such as 2 d 01:00:00 or 00:01:00."""
    days, rest = divmod(int(ns), DAY)
    seconds = rest // SECOND
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{days} d {clock}" if days else clock
