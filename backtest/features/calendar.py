"""Sine and cosine of the time of day, the weekday and the day of the year of a bar's close in UTC.

Values come from tables by second, weekday and day, so a row never depends on its neighbours.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from backtest.features.rolling import Floats

Times = npt.NDArray[np.int64]
SECOND = 1_000_000_000  # nanoseconds
DAY = 86_400  # seconds
YEAR = 365.25  # days


@cache
def _circle(rows: int, period: float) -> tuple[Floats, Floats]:
    angle = 2.0 * np.pi * np.arange(rows) / period
    return np.sin(angle), np.cos(angle)


def time_of_day(time: Times) -> tuple[Floats, Floats]:
    """Return sine and cosine of the time of day, to the second; time is ns UTC, int64[n]."""
    sine, cosine = _circle(DAY, DAY)
    second = time // SECOND % DAY
    return sine[second], cosine[second]


def day_of_week(time: Times) -> tuple[Floats, Floats]:
    """Return sine and cosine of the weekday, Monday at angle 0; time is ns UTC, int64[n]."""
    sine, cosine = _circle(7, 7)
    weekday = (time // (SECOND * DAY) + 3) % 7  # 1970-01-01 was a Thursday
    return sine[weekday], cosine[weekday]


def day_of_year(time: Times) -> tuple[Floats, Floats]:
    """Return sine and cosine of the day of the year, 1 January at angle 0; ns UTC, int64[n]."""
    sine, cosine = _circle(366, YEAR)
    date = time.astype("datetime64[ns]").astype("datetime64[D]")
    day = (date - date.astype("datetime64[Y]").astype("datetime64[D]")).astype(np.int64)
    return sine[day], cosine[day]
