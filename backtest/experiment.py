"""One study on one lake: where its files are and which bars each fold may read.

Everything that a step of the pipeline reads goes through here, cut to the rows it may see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from backtest import identity
from backtest.agent.weights import AUX_COLUMN
from backtest.calendar_folds import calendar_folds, feature_windows, fold_of
from backtest.config import Config, Instrument
from backtest.data.bars import Bars, read_bars
from backtest.errors import DataError
from backtest.features.adx import AdxSeed
from backtest.features.parquet import read_features, write_features
from backtest.features.scaler import Scaler
from backtest.features.state import RECENT, bar_state
from backtest.features.table import FeatureTable, compute, joined
from backtest.lake import Lake
from backtest.market.layout import Array
from backtest.market.records import bar_records
from backtest.market.tape import Tape, market_params
from backtest.splits import Fold, Window

if TYPE_CHECKING:
    from backtest.agent.foundation import Foundation

# Rows a window's feature file holds before its first bar: the state reads 28 differences, and the
# first decision of a test window is taken one bar before it.
LEAD = RECENT + 1


@dataclass(frozen=True)
class Experiment:
    """A configuration on a lake."""

    config: Config
    lake: Lake

    @cached_property
    def study_id(self) -> str:
        """Identity of settings and code."""
        return identity.study_id(self.config)

    def instrument(self, name: str) -> Instrument:
        """Return the settings of one instrument."""
        return self.config.instrument_settings(name)

    def always_open(self, name: str) -> bool:
        """Return whether the instrument trades around the clock."""
        return self.instrument(name).calendar == "24/7"

    def bars(self, name: str) -> Bars:
        """Return the cleaned bars of one instrument.

        Raises:
            DataError: they were not ingested.
        """
        path = self.lake.bars(name)
        if not path.is_file():
            raise DataError(f"{path}: no bars of {name}; run `skillwalk ingest` or asset bars")
        return _bars(path, path.stat().st_mtime_ns)

    def folds(self, name: str) -> list[Fold]:
        """Return the folds of one instrument, of every status."""
        bars = self.bars(name)
        return calendar_folds(self.config.folds, bars.time, bars.session, self.always_open(name))

    def fold(self, name: str, key: str) -> Fold:
        """Return the fold of a partition key; outside the history it is skipped."""
        return fold_of(self.folds(name), key)

    def open_fold(self, name: str, key: str) -> Fold:
        """Return a fold that can be trained and evaluated.

        Raises:
            DataError: it is skipped; says why.
        """
        fold = self.fold(name, key)
        if fold.status == "skipped":
            raise DataError(
                f"fold {key} of {name} is skipped ({fold.reason}); `skillwalk folds` lists the "
                "folds that its bars allow"
            )
        return fold

    def windows(self, name: str) -> dict[str, Window]:
        """Return key -> bars of every calendar window, in the order of time."""
        bars = self.bars(name)
        return feature_windows(self.config.folds, bars.time, bars.session, self.always_open(name))

    def history_keys(self, name: str, key: str) -> list[str]:
        """Return the train and validation windows of a fold, in the order of time.

        Raises:
            DataError: the fold is skipped.
        """
        fold = self.open_fold(name, key)
        keys = list(self.windows(name))
        at = keys.index(fold.key)
        return keys[at - self.config.folds.train - self.config.folds.validation : at]

    def fold_id(self, name: str, fold: Fold) -> str:
        """Return the identity of a fold: study, instrument, key and every bar up to its end."""
        rows = self.rows_hash(name, fold.test.stop)
        return identity.fold_id(self.study_id, name, fold.key, rows)

    def rows_hash(self, name: str, stop: int) -> str:
        """Return the hash of bars [0, stop)."""
        path = self.lake.bars(name)
        return _rows_hash(path, path.stat().st_mtime_ns, stop)

    def write_window(self, name: str, key: str) -> FeatureTable:
        """Compute the features of one window from the whole history and write its file.

        Its `bars_hash` covers the bars up to the window's end, so later bars leave the file as it
        is.

        Raises:
            DataError: no such window, or it has no bars.
        """
        window = self._window(name, key)
        path = self.lake.bars(name)
        table = _features(path, path.stat().st_mtime_ns, self.config.features.adx_seed)
        part = table.slice(max(window.start - LEAD, 0), window.stop)
        part = replace(part, bars_hash=self.rows_hash(name, window.stop))
        write_features(part, self.lake.features(self.study_id, name, key))
        return part

    def read_windows(self, name: str, keys: Sequence[str]) -> FeatureTable:
        """Return the features of consecutive windows, with the lead of the first.

        Windows without bars have no file and are left out.

        Raises:
            DataError: no such window, a file is missing, or one belongs to other bars.
        """
        parts: list[FeatureTable] = []
        bars_hash = ""
        for key in keys:
            window = self._window(name, key, empty=True)
            if not len(window):
                continue
            path = self.lake.features(self.study_id, name, key)
            table = read_features(path)
            bars_hash = self.rows_hash(name, window.stop)
            if table.bars_hash != bars_hash or table.stop != window.stop:
                raise DataError(
                    f"{path}: computed from other bars than {name} has now; materialise the "
                    "features of this window again"
                )
            lead = table.first_bar if not parts else window.start
            # the windows' own hashes differ: each covers the bars up to its end
            parts.append(replace(table.slice(lead, window.stop), bars_hash=""))
        return replace(joined(parts), bars_hash=bars_hash)

    def _window(self, name: str, key: str, *, empty: bool = False) -> Window:
        windows = self.windows(name)
        if key not in windows or not (len(windows[key]) or empty):
            first, *_, last = windows
            raise DataError(f"{name} has no bars in window {key}; windows run {first} to {last}")
        return windows[key]


@dataclass(frozen=True)
class FoldMarket:
    """What a fold fits on its train rows, and how it cuts a table into what may be seen."""

    config: Config
    instrument: Instrument
    fold: Fold
    base: float  # points, close[train.start]
    scaler: Scaler

    @classmethod
    def fit(
        cls, config: Config, instrument: Instrument, fold: Fold, table: FeatureTable
    ) -> FoldMarket:
        """Fit base and scaler on the rows that train the policy; no other row is read."""
        window = learning(config, fold)
        train = table.slice(window.start, window.stop)
        rows = table.rows(window.start, window.stop)
        scaler = Scaler.fit(rows, config.features.scaler)
        return cls(config, instrument, fold, float(train.close[0]), scaler)

    @property
    def learning(self) -> Window:
        """Bars that train the policy: the train window, or its first part."""
        return learning(self.config, self.fold)

    @property
    def collection(self) -> Window:
        """Bars that skills are formed on: the train window, or what the policy left of it."""
        start = self.learning.stop if self.config.skills.collect_from else self.fold.train.start
        return Window(start, self.fold.train.stop)

    def cut(self, table: FeatureTable, start: int, stop: int) -> tuple[Tape, Array]:
        """Return the tape and the states float32[n, 115] of bars [start, stop), no forecast."""
        seen = table.slice(max(start - RECENT, table.first_bar), stop)
        part = seen.slice(start, stop)
        params = market_params(self.config, self.instrument, self.base)
        records = bar_records(part, self.base, table.volume_known)
        state = bar_state(
            seen, self.scaler, tick_size=self.instrument.tick_size, start=start, stop=stop
        )
        return Tape(start, records, params, np.zeros(len(part), np.float32)), state

    def train(
        self, table: FeatureTable, foundation: Foundation | None = None
    ) -> tuple[Tape, Array]:
        """Return what training may read, with the out-of-fold forecasts of a foundation."""
        tape, state = self.cut(table, self.learning.start, self.learning.stop)
        if foundation is None:
            return tape, state
        return with_forecast(tape, state, foundation.forecast_train(len(state)))

    def collected(
        self, table: FeatureTable, foundation: Foundation | None = None
    ) -> tuple[Tape, Array]:
        """Return what skills may be formed on; forecasts are never of rows that fitted them."""
        if self.collection == self.learning:
            return self.train(table, foundation)
        tape, state = self.cut(table, self.collection.start, self.collection.stop)
        if foundation is None:
            return tape, state
        return with_forecast(tape, state, foundation.forecast(state))

    def validation(
        self, table: FeatureTable, foundation: Foundation | None = None
    ) -> tuple[Tape, Array]:
        """Return the validation window and the bar before it, on which it first decides.

        The forecasts are those of the foundation's head of all train rows.
        """
        return self._outside(table, self.fold.validation, foundation)

    def test(self, table: FeatureTable, foundation: Foundation | None = None) -> tuple[Tape, Array]:
        """Return the test window and the bar before it, on which it first decides.

        The forecasts are those of the foundation's head of all train rows; that of a policy will do
        (`Policy.foundation`).
        """
        return self._outside(table, self.fold.test, foundation)

    def _outside(
        self, table: FeatureTable, window: Window, foundation: Foundation | None
    ) -> tuple[Tape, Array]:
        tape, state = self.cut(table, window.start - 1, window.stop)
        if foundation is None:
            return tape, state
        return with_forecast(tape, state, foundation.forecast(state))


def learning(config: Config, fold: Fold) -> Window:
    """Return the bars of a fold that train the policy (`skills.collect_from`)."""
    share = config.skills.collect_from
    if share is None:
        return fold.train
    return Window(fold.train.start, fold.train.start + int(share * len(fold.train)))


def with_forecast(tape: Tape, state: Array, forecast: Array) -> tuple[Tape, Array]:
    """Return the tape and the states with a direction forecast float32[n] in aux and slot 121.

    `state` is changed in place.
    """
    state[:, AUX_COLUMN] = forecast
    return replace(tape, aux=forecast), state


# Steps of one process come back to the same files: keep the last few.
@lru_cache(maxsize=4)
def _bars(path: Path, version: int) -> Bars:
    # version is the file's time stamp: a file written again is read again
    return read_bars(path)


@lru_cache(maxsize=64)
def _rows_hash(path: Path, version: int, stop: int) -> str:
    return identity.rows_hash(_bars(path, version), stop)


@lru_cache(maxsize=1)
def _features(path: Path, version: int, adx_seed: AdxSeed) -> FeatureTable:
    return compute(_bars(path, version), adx_seed)
