"""The `[folds]` section as folds and windows of one instrument, named like the UI's partitions.

The key of a fold and of a window is the ISO date of its first day, such as 2011-01-01.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from backtest.calendar_windows import Sessions, Times, calendar_windows
from backtest.config import Folds
from backtest.errors import ConfigError
from backtest.splits import Fold, WalkForward, Window


@contextmanager
def section() -> Iterator[None]:
    """Name the section of the configuration in what a plan refuses."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"[folds] {error}") from None


def calendar_plan(plan: Folds, *, always_open: bool) -> WalkForward:
    """Return the `[folds]` section as a plan; its short last window is kept, as `partial`."""
    return WalkForward(
        train=plan.train,
        validation=plan.validation,
        test=1,
        purge=plan.purge,
        embargo=plan.embargo,
        warmup=plan.warmup,
        horizon=plan.horizon,
        fill_lag=plan.fill_lag,
        unit="calendar",
        cron=plan.cron,
        calendar="24/7" if always_open else None,
        end=plan.end,
        keep_partial=True,
    )


def calendar_folds(plan: Folds, time: Times, session: Sessions, always_open: bool) -> list[Fold]:
    """Return the folds of one instrument under the `[folds]` section, of every status.

    The first tests the window that follows warm-up, train and validation; the last is the window
    of the last bar, or the last before `folds.end`. See `WalkForward.folds` for arguments, errors.
    """
    with section():
        return calendar_plan(plan, always_open=always_open).folds(len(time), time, session)


def fold_of(folds: Sequence[Fold], key: str) -> Fold:
    """Return the fold of a partition key; outside the instrument's history it is skipped."""
    for fold in folds:
        if fold.key == key:
            return fold
    reason = "too little history" if folds and key < folds[0].key else "no bars"
    none = Window(0, 0)
    return Fold(-1, key, none, none, none, "skipped", reason)


def feature_windows(
    plan: Folds, time: Times, session: Sessions, always_open: bool
) -> dict[str, Window]:
    """Return key -> bars of every window from bar 0 on, those before the first fold included.

    A window without bars is an empty range; bars at or after `folds.end` are in none.
    """
    with section():
        windows = calendar_windows(plan.cron, time, session, always_open=always_open, end=plan.end)
    edges = windows.edges.tolist()
    return {key: Window(*edges[w : w + 2]) for w, key in enumerate(windows.keys)}


def window_keys(plan: Folds, time: Times, session: Sessions, always_open: bool) -> list[str]:
    """Return the keys of `feature_windows`, in the order of time."""
    return list(feature_windows(plan, time, session, always_open))
