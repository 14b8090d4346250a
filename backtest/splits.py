"""Walk-forward folds: half-open ranges of bars on the one global axis, purged by construction.

Timing. A decision at the close of bar b reads rows <= b, fills at bar b + 1 and is labelled by
prices up to bar b + fill_lag + horizon. A window owns the PnL of its bars: the decision that earns
bar `test.start` is taken at `test.start - 1`. The purge removes from the end of train and of
validation every bar whose label would read the window behind it; a test window is never shortened.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from backtest.calendar_windows import (
    DAY_NS,
    Sessions,
    Times,
    bar_places,
    calendar_windows,
    iso,
)
from backtest.cron import Days
from backtest.errors import ConfigError

Status = Literal["complete", "partial", "skipped"]
LEAST_BARS = 2  # of train and of validation: one decision and the bar that it earns


@dataclass(frozen=True)
class Window:
    """Bars [start, stop)."""

    start: int
    stop: int

    def __len__(self) -> int:
        return max(self.stop - self.start, 0)

    def __contains__(self, bar: object) -> bool:
        return isinstance(bar, int | np.integer) and self.start <= int(bar) < self.stop


@dataclass(frozen=True)
class Fold:
    """One step of the walk-forward; `validation` is empty when the plan has none."""

    index: int  # place in the instrument's folds, -1 for a key outside its history
    key: str  # calendar and session plans: ISO date of the test window's first day
    train: Window
    validation: Window
    test: Window
    status: Status = "complete"
    reason: str = ""  # why the fold is not complete


@dataclass(frozen=True)
class WalkForward:
    """A plan: lengths of train, validation and test in `unit`s, cut into folds by `folds`.

    Test windows tile the covered span, so `step` equals `test` (None: it does). `purge`,
    `embargo`, `warmup`, `horizon` and `fill_lag` are always bars. With warm-up 0, horizon 1 and
    purge 2, train 30, validation 10 and test 10 bars give
    `(0,28 | 30,38 | 40,50), (10,38 | 40,48 | 50,60), ...`.

    The embargo follows a test window: train data behind it starts `purge + embargo` bars later
    (see `around`). In rolling and anchored plans no train data lies behind its own test window, so
    there it cuts nothing; what a later fold trains on was out of sample before, and was reported.

    Sessions are counted as they stand in the data: pass whole ones. Calendar plans count windows
    of `cron`; they roll, with test and step of one window.

    Raises:
        ConfigError: names the parameter, its value and what is allowed.
    """

    train: int
    validation: int
    test: int
    step: int | None = None
    mode: Literal["rolling", "anchored"] = "rolling"
    purge: int | None = None  # None: horizon + fill_lag, the least that is allowed
    embargo: int = 0
    warmup: int = 605  # bars before the first train bar
    horizon: int = 12  # longest look-ahead of a label or return
    fill_lag: int = 1  # decision to mark
    unit: Literal["bars", "sessions", "calendar"] = "bars"
    cron: str | None = None
    calendar: str | None = None  # "24/7": places bars by their time, else by the session dates
    end: str | None = None  # calendar plans: ISO date that closes the last window
    keep_partial: bool = False  # keep a short last test window, as `partial`

    def __post_init__(self) -> None:
        least = {"train": 1, "test": 1}
        for name in ("train", "validation", "test", "embargo", "warmup", "horizon", "fill_lag"):
            check_count(name, getattr(self, name), least.get(name, 0))
        for name, allowed in (
            ("mode", ("rolling", "anchored")),
            ("unit", ("bars", "sessions", "calendar")),
        ):
            if getattr(self, name) not in allowed:
                raise ConfigError(f"{name} = {getattr(self, name)!r}: use {' or '.join(allowed)}")
        if self.step is not None and self.step != self.test:
            raise ConfigError(
                f"step = {self.step} differs from test = {self.test}: test windows would overlap "
                "or leave holes; leave step out"
            )
        needed = self.horizon + self.fill_lag
        if self.purge is not None:
            check_count("purge", self.purge, 0)
            if self.purge < needed:
                raise ConfigError(
                    f"purge = {self.purge} is less than horizon + fill_lag = {needed}: the last "
                    f"labels of train would read the window behind it; use {needed} or more"
                )
        if self.unit == "calendar":
            self._check_calendar()
        elif self.cron is not None or self.end is not None:
            raise ConfigError(f"cron and end belong to unit = 'calendar', not {self.unit!r}")
        if self.unit == "bars":
            least_bars = self.purged + LEAST_BARS
            for name in ("train", "validation"):
                if 0 < getattr(self, name) < least_bars:
                    raise ConfigError(
                        f"{name} = {getattr(self, name)} bars, of which the purge takes "
                        f"{self.purged}; use {least_bars} or more"
                    )

    def _check_calendar(self) -> None:
        if self.cron is None:
            raise ConfigError("unit = 'calendar' needs a cron, such as '0 0 1 1 *' for years")
        if self.mode != "rolling":
            raise ConfigError(
                f"mode = {self.mode!r}: calendar plans only roll (each fold reads the same number "
                "of windows before it); use bars or sessions for an anchored plan"
            )
        if self.test != 1:
            raise ConfigError(
                f"test = {self.test}: a calendar plan tests one window of its cron; widen the cron"
            )

    @property
    def purged(self) -> int:
        """Bars cut from the end of train and of validation."""
        return self.horizon + self.fill_lag if self.purge is None else self.purge

    def folds(
        self, n_bars: int, time: Times | None = None, session: Sessions | None = None
    ) -> list[Fold]:
        """Return the folds of bars [0, n_bars), in the order of time.

        Args:
            n_bars: length of the axis.
            time: int64[n_bars], ns UTC bar closes; needed by calendar "24/7".
            session: int32[n_bars], days since 1970 of the session date; needed by sessions and
                calendar plans of any other market.

        Raises:
            ConfigError: no fold fits; says how many bars the plan needs.
            DataError: bars out of order.
        """
        units = self._units(n_bars, time, session)
        found: list[Fold] = []
        for test in range(units.first + self.train + self.validation, units.count, self.test):
            fold = self._fold(units, len(found), test)
            if fold.status != "partial" or self.keep_partial:
                found.append(fold)
        if all(fold.status == "skipped" for fold in found):
            raise ConfigError(self._shortage(units, n_bars, found))
        return found

    def n_folds(
        self, n_bars: int, time: Times | None = None, session: Sessions | None = None
    ) -> int:
        """Return the number of folds: the length of the list, not a second formula."""
        return len(self.folds(n_bars, time, session))

    def _fold(self, units: Units, index: int, test: int) -> Fold:
        """Return the fold whose test window begins with unit `test`."""
        tune = test - self.validation
        train = units.bars(units.first if self.mode == "anchored" else tune - self.train, tune)
        validation = units.bars(tune, test)
        held_out = units.bars(test, min(test + self.test, units.count))
        # nothing that is learned from lies behind what it is tested on, so there is no second part
        train, _ = around(train, validation, self.purged, self.embargo)
        if self.validation:
            validation, _ = around(validation, held_out, self.purged, self.embargo)

        status: Status = "complete"
        reason = ""
        used = {"train": train} | ({"validation": validation} if self.validation else {})
        short = [
            f"{name} has {len(window)} bars after a purge of {self.purged}"
            for name, window in used.items()
            if len(window) < LEAST_BARS
        ]
        if not len(held_out):
            status, reason = "skipped", "no bars"
        elif short:
            status, reason = "skipped", f"too little history: {' and '.join(short)}"
        elif test + self.test > units.ended:
            status, reason = "partial", "the test window has not ended"
        return Fold(index, units.key(test), train, validation, held_out, status, reason)

    def _units(self, n_bars: int, time: Times | None, session: Sessions | None) -> Units:
        """Cut the axis into what the plan counts."""
        check_count("n_bars", n_bars, 0)
        for name, column in (("time", time), ("session", session)):
            if column is not None and len(column) != n_bars:
                raise ConfigError(f"{name} has {len(column)} rows for n_bars = {n_bars}")
        always_open = self.calendar == "24/7"
        if self.unit == "bars":
            return Units(range(n_bars + 1), ended=n_bars, first=self.warmup, days=None)
        if self.unit == "calendar":
            windows = calendar_windows(
                self.cron or "", time, session, always_open=always_open, end=self.end
            )
            edges, days, ended = windows.edges, windows.days, windows.ended
            whole_from = windows.whole_from
        else:
            place = bar_places(time, session, always_open=always_open)
            dates = place // DAY_NS if always_open else place
            starts = np.flatnonzero(np.diff(dates, prepend=dates[0] - 1))
            edges, days, whole_from = np.append(starts, n_bars), dates[starts], 0
            # a market that never closes shows by its clock whether the last day is over
            over = not always_open or time is None or time[-1] >= (days[-1] + 1) * DAY_NS
            ended = len(days) - int(not over)
        first = max(int(np.searchsorted(edges[:-1], self.warmup)), whole_from)
        return Units(edges.tolist(), ended=ended, first=first, days=days)

    def _shortage(self, units: Units, n_bars: int, found: Sequence[Fold]) -> str:
        """Say why no fold fits and how many bars would do."""
        history = self.train + self.validation
        parts = f"train {self.train} + validation {self.validation} + test {self.test}"
        if self.unit == "bars":
            needed = self.warmup + history + self.test
            return (
                f"the plan needs {needed} bars (warm-up {self.warmup} + {parts}) and there are "
                f"{n_bars}; add bars or shorten train, validation or test"
            )
        name = "sessions" if self.unit == "sessions" else f"windows of cron {self.cron!r}"
        short = next((fold for fold in found if fold.reason != "no bars"), None)
        if short is not None:
            return (
                f"no fold fits: {short.reason}; train and validation need at least "
                f"{self.purged + LEAST_BARS} bars each, so count more {name} or use longer ones"
            )
        per_unit = units.edges[-1] / max(units.count, 1)
        needed = self.warmup + math.ceil((history + self.test) * per_unit)
        left = max(units.ended - units.first, 0)
        closed = f" before end = {self.end!r}" if self.end else ""
        return (
            f"the plan needs {history + self.test} whole {name} ({parts}) after {self.warmup} bars "
            f"of warm-up, about {needed} bars; the {n_bars} bars hold {left}{closed}; add bars, or "
            "shorten train or validation"
        )


@dataclass(frozen=True)
class Units:
    """The axis cut into the units that a plan counts; unit u owns bars [edges[u], edges[u+1])."""

    edges: Sequence[int]
    ended: int  # units that no later bar can change
    first: int  # first unit of train: whole, at or after the warm-up
    days: Days | None  # first day of each unit; None for bars

    @property
    def count(self) -> int:
        """Number of units."""
        return len(self.edges) - 1

    def bars(self, start: int, stop: int) -> Window:
        """Return the bars of units [start, stop)."""
        return Window(int(self.edges[start]), int(self.edges[stop]))

    def key(self, unit: int) -> str:
        """Name of the fold whose test window begins with this unit."""
        return f"bar_{unit}" if self.days is None else iso(self.days[unit])


def around(data: Window, held_out: Window, purge: int, embargo: int = 0) -> tuple[Window, Window]:
    """Return what may be used of `data` before and behind a held-out window.

    Before it, the last `purge` bars go: their labels read held-out prices. Behind it, `purge`
    bars go (labels of held-out bars read theirs) and then `embargo` more: the two add up.
    """
    behind = held_out.stop + purge + embargo
    before = Window(data.start, max(data.start, min(data.stop, held_out.start - purge)))
    return before, Window(min(data.stop, max(data.start, behind)), data.stop)


def check_count(name: str, value: object, least: int) -> None:
    """Refuse anything but a whole number from `least` on."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ConfigError(f"{name} = {value!r}: use a whole number, {least} or more")
