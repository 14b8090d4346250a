"""The folds as Dagster partitions, and which windows a fold may read: leakage as a graph.

A fold is keyed by the first day of its test window. Seeds, variants and trials are rows, not
partitions: they run inside a step.
"""

from __future__ import annotations

from dataclasses import dataclass

import dagster as dg

from backtest.calendar_folds import calendar_folds, window_keys
from backtest.config import Config, Folds
from backtest.data.bars import read_bars
from backtest.errors import ConfigError
from backtest.lake import Lake

INSTRUMENTS = dg.DynamicPartitionsDefinition(name="instruments")
FOLD, INSTRUMENT = "fold", "instrument"  # the two dimensions
EPOCH = "1970-01-01"  # first window when neither bars nor `folds.start` say which


@dataclass(frozen=True)
class Partitions:
    """The partition definitions of one experiment.

    Attributes:
        plan: the `[folds]` section behind them.
        windows: [window x instrument]; windows before the first fold exist here only.
        folds: [fold x instrument].
    """

    plan: Folds
    windows: dg.MultiPartitionsDefinition
    folds: dg.MultiPartitionsDefinition

    def train(self) -> dg.MultiPartitionMapping:
        """Return the train windows of a fold: what experience is collected on."""
        return fold_mapping(-self.history, -self.plan.validation - 1)

    def train_and_validation(self) -> dg.MultiPartitionMapping:
        """Return the windows that a policy may have read."""
        return fold_mapping(-self.history, -1)

    def test(self) -> dg.MultiPartitionMapping:
        """Return the fold's own window."""
        return fold_mapping(0, 0)

    @property
    def history(self) -> int:
        """Train and validation windows of a fold."""
        return self.plan.train + self.plan.validation

    def fold_keys(self) -> list[str]:
        """Return the keys of all folds, the one whose window is still open included."""
        return list(self.folds.get_partitions_def_for_dimension(FOLD).get_partition_keys())

    def window_keys(self) -> list[str]:
        """Return the keys of all windows."""
        return list(self.windows.get_partitions_def_for_dimension(FOLD).get_partition_keys())


def partitions(config: Config, lake: Lake) -> Partitions:
    """Return the partitions of an experiment.

    Windows begin with the first bar on the lake, folds with the first that has its warm-up, train
    and validation windows. For bars that are not ingested yet they begin with `folds.start`.

    Raises:
        ConfigError: a cron or an end that cannot be right.
    """
    plan = config.folds
    starts, firsts = [], []
    for name in config.study.instruments:
        if lake.bars(name).is_file():
            bars = read_bars(lake.bars(name))
            always_open = config.instrument_settings(name).calendar == "24/7"
            axis = (bars.time, bars.session, always_open)
            starts.append(window_keys(plan, *axis)[0])
            try:
                firsts.append(calendar_folds(plan, *axis)[0].key)
            except ConfigError:
                continue  # too few bars for any fold
        else:
            starts.append(plan.start or EPOCH)
    windows = time_windows(plan, min(starts))
    keys = windows.get_partition_keys()
    history = plan.train + plan.validation
    if not firsts:
        if len(keys) <= history:
            raise ConfigError(
                f"[folds] cron = {plan.cron!r} has {len(keys)} windows from {min(starts)} on, the "
                f"plan needs {history + 1}; use an earlier start, a later end or fewer windows"
            )
        firsts.append(keys[history])
    return Partitions(
        plan=plan,
        windows=by_instrument(windows),
        folds=by_instrument(time_windows(plan, min(firsts))),
    )


def time_windows(plan: Folds, start: str) -> dg.TimeWindowPartitionsDefinition:
    """Return the windows of the cron from a day on; the one still open is the last."""
    return dg.TimeWindowPartitionsDefinition(
        start=start, end=plan.end, cron_schedule=plan.cron, fmt="%Y-%m-%d", end_offset=1
    )


def by_instrument(windows: dg.TimeWindowPartitionsDefinition) -> dg.MultiPartitionsDefinition:
    """Return windows x instruments."""
    return dg.MultiPartitionsDefinition({FOLD: windows, INSTRUMENT: INSTRUMENTS})


def fold_mapping(first: int, last: int) -> dg.MultiPartitionMapping:
    """Return the windows from `first` to `last`, counted from the fold's, of its instrument."""
    windows = dg.TimeWindowPartitionMapping(start_offset=first, end_offset=last)
    return dg.MultiPartitionMapping(
        {
            FOLD: dg.DimensionPartitionMapping(FOLD, windows),
            INSTRUMENT: dg.DimensionPartitionMapping(INSTRUMENT, dg.IdentityPartitionMapping()),
        }
    )


def of_instrument() -> dg.MultiToSingleDimensionPartitionMapping:
    """Return the mapping from an asset with one partition an instrument."""
    return dg.MultiToSingleDimensionPartitionMapping(INSTRUMENT)


def partition(instrument: str, key: str) -> dg.MultiPartitionKey:
    """Return the partition key of a fold or window of an instrument."""
    return dg.MultiPartitionKey({FOLD: key, INSTRUMENT: instrument})


def parts(key: str) -> tuple[str, str]:
    """Return (instrument, fold or window key) of a partition key."""
    if isinstance(key, dg.MultiPartitionKey):
        dimensions = key.keys_by_dimension
        return dimensions[INSTRUMENT], dimensions[FOLD]
    raise TypeError(f"{key!r} has no dimensions")
