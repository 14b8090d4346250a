"""The rows of a fold that trials read, made once for all its seeds.

What a fold fits and how it scales its states does not depend on the seed; only the forecasts of
stage 0 do, and they are put into copies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

from backtest.agent.foundation import Foundation
from backtest.experiment import Experiment, FoldMarket, with_forecast
from backtest.features.table import FeatureTable
from backtest.market.layout import Array
from backtest.market.tape import Tape

Seen = tuple[Tape, Array]  # a tape, and the states float32[n, 115] of the same bars


class FoldRows:
    """Train and validation rows of one fold, or its train rows alone.

    Attributes:
        market: what the fold fits on its train rows.
        table: features of the windows.
    """

    def __init__(self, market: FoldMarket, table: FeatureTable) -> None:
        """Keep what windows are cut from; each is cut when it is first asked for."""
        self.market, self.table = market, table

    def train(self, foundation: Foundation | None) -> Seen:
        """Return what training may read; see `FoldMarket.train`."""
        if foundation is None:
            return self._train
        return _seen(self._train, lambda state: foundation.forecast_train(len(state)))

    def collected(self, foundation: Foundation | None) -> Seen:
        """Return what skills may be formed on; see `FoldMarket.collected`."""
        if self.market.collection == self.market.learning:
            return self.train(foundation)
        return self.market.collected(self.table, foundation)

    def validation(self, foundation: Foundation | None) -> Seen:
        """Return the validation window; see `FoldMarket.validation`."""
        return (
            self._validation if foundation is None else _seen(self._validation, foundation.forecast)
        )

    @cached_property
    def _train(self) -> Seen:
        return self.market.train(self.table)

    @cached_property
    def _validation(self) -> Seen:
        return self.market.validation(self.table)


def _seen(rows: Seen, forecast: Callable[[Array], Array]) -> Seen:
    tape, state = rows[0], rows[1].copy()
    return with_forecast(tape, state, forecast(state))


def fold_rows(
    experiment: Experiment, instrument: str, fold_key: str, *, validation: bool = True
) -> FoldRows:
    """Return the rows of a fold; those asked for last are kept.

    Args:
        experiment: the study.
        instrument: its name.
        fold_key: of the fold.
        validation: read the validation windows as well as the train windows.

    Raises:
        DataError: the fold is skipped, or feature files are missing or of other bars.
    """
    keys = experiment.history_keys(instrument, fold_key)
    keys = keys if validation else keys[: experiment.config.folds.train]
    # a file that was written again is read again
    paths = (experiment.lake.features(experiment.study_id, instrument, key) for key in keys)
    versions = tuple(path.stat().st_mtime_ns if path.is_file() else 0 for path in paths)
    fold_id = experiment.fold_id(instrument, experiment.fold(instrument, fold_key))
    root = experiment.lake.root
    return _read(_Windows(fold_id, root, instrument, fold_key, tuple(keys), versions, experiment))


@dataclass(frozen=True)
class _Windows:
    fold_id: str
    root: Path
    instrument: str
    fold_key: str
    keys: tuple[str, ...]
    versions: tuple[int, ...]
    experiment: Experiment = field(compare=False)  # the rows depend on the fold's identity alone


@lru_cache(maxsize=2)  # a fold's train rows alone, and with its validation rows
def _read(windows: _Windows) -> FoldRows:
    experiment, name = windows.experiment, windows.instrument
    table = experiment.read_windows(name, windows.keys)
    fold = experiment.fold(name, windows.fold_key)
    market = FoldMarket.fit(experiment.config, experiment.instrument(name), fold, table)
    return FoldRows(market, table)
