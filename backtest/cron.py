"""The days on which a five-field cron schedule fires, for schedules of at most one tick a day.

Fold windows are cut at these ticks; the partition keys of the UI come from the same schedule.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from backtest.errors import ConfigError

Days = npt.NDArray[np.int64]

# field -> lowest and highest value; 7 is a second name of Sunday
FIELDS = {
    "minute": (0, 59),
    "hour": (0, 23),
    "day-of-month": (1, 31),
    "month": (1, 12),
    "day-of-week": (0, 7),
}
ADVICE = (
    "use 'minute hour day-of-month month day-of-week' in numbers, *, lists, ranges and steps, "
    "such as '0 0 1 1 *' (yearly), '0 0 1 */3 *' (quarterly), '0 0 1 * *' (monthly), "
    "'0 0 * * 1' (weekly)"
)


@dataclass(frozen=True)
class Cron:
    """One parsed schedule: a time of day (UTC) and a rule for the days."""

    text: str
    minute: int
    hour: int
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  # 0 = Sunday
    either: bool  # day of month and day of week both restrict: a day that meets one of them fires

    @classmethod
    def parse(cls, text: str) -> Cron:
        """Parse `text`.

        Raises:
            ConfigError: another number of fields, names, macros, values out of range, or more
                than one tick a day.
        """
        fields = text.split()
        if len(fields) != len(FIELDS):
            raise ConfigError(f"cron = {text!r}: {len(fields)} fields instead of 5; {ADVICE}")
        values = {name: expand(text, name, f) for name, f in zip(FIELDS, fields, strict=True)}
        for name in ("minute", "hour"):
            if len(values[name]) != 1:
                raise ConfigError(
                    f"cron = {text!r}: {name} must be one number, a window is a whole number of "
                    f"days; {ADVICE}"
                )
        return cls(
            text=text,
            minute=min(values["minute"]),
            hour=min(values["hour"]),
            days=values["day-of-month"],
            months=values["month"],
            weekdays=frozenset(day % 7 for day in values["day-of-week"]),
            either=fields[2] != "*" and fields[4] != "*",
        )

    def fires(self, first: int, last: int) -> Days:
        """Return the days in [first, last] (since 1970-01-01) with a tick, int64[k], ascending."""
        days = np.arange(first, last + 1, dtype=np.int64)
        dates = days.astype("datetime64[D]")
        months = dates.astype("datetime64[M]")
        of_month = (dates - months).astype(np.int64) + 1
        in_days = np.isin(of_month, sorted(self.days))
        # 1970-01-01 was a Thursday
        in_week = np.isin((days + 4) % 7, sorted(self.weekdays))
        rule = in_days | in_week if self.either else in_days & in_week
        ticks: Days = days[rule & np.isin(months.astype(np.int64) % 12 + 1, sorted(self.months))]
        return ticks


def expand(text: str, name: str, field: str) -> frozenset[int]:
    """Return the values that one field of the schedule `text` allows."""
    low, high = FIELDS[name]
    values: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, dash, last = span.partition("-")
        if span == "*":
            first, dash, last = str(low), "-", str(min(high, 6) if name == "day-of-week" else high)
        numbers = [first, last] if dash else [first]
        if "/" in part:
            numbers.append(step)
        if not all(number.isascii() and number.isdigit() for number in numbers):
            raise ConfigError(f"cron = {text!r}: {name} {part!r} is not understood; {ADVICE}")
        start = int(first)
        # "5/2" runs to the end of the field
        stop = int(last) if dash else (high if "/" in part else start)
        stride = int(step) if "/" in part else 1
        if not (low <= start <= stop <= high and stride > 0):
            raise ConfigError(
                f"cron = {text!r}: {name} {part!r} is outside {low}-{high} or empty; {ADVICE}"
            )
        values.update(range(start, stop + 1, stride))
    return frozenset(values)
