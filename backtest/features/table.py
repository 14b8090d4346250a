"""FeatureTable: the bars of a range with their 84 features, on the global bar axis.

Features with memory are computed from the whole history once; a range is a slice of that table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from backtest.errors import DataError
from backtest.features.adx import AdxSeed
from backtest.features.calendar import Times
from backtest.features.market import market_features
from backtest.features.names import FEATURES, MARKET_DIM, SLOW_FEATURES
from backtest.features.rolling import Floats
from backtest.features.slow import slow_features

if TYPE_CHECKING:
    from backtest.data.bars import Bars

# Columns beside the features, one value a bar; `bar` itself is first_bar + row.
SERIES = (
    "time",
    "open",
    "high",
    "low",
    "close",
    "sigma",
    "volume",
    "roll",
    "cusum_event",
)
# What a table repeats of its bars.
OF_BARS = ("time", "open", "high", "low", "close", "volume", "roll", "volume_known")


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Bars [first_bar, first_bar + n) and their features; row i is bar first_bar + i."""

    first_bar: int
    time: Times  # close of the bar, ns UTC, int64[n]
    open: Floats  # points, float64[n], as traded (not adjusted for rolls)
    high: Floats
    low: Floats
    close: Floats
    volume: Floats
    sigma: Floats  # points, float64[n]
    roll: npt.NDArray[np.bool_]
    cusum_event: npt.NDArray[np.int8]  # +1 S+ passed the threshold, -1 S- did, else 0
    market: Floats  # float64[n, 42], unscaled
    slow: Floats  # float64[n, 42] of the last closed 5-bar slow bar, unscaled
    volume_known: bool = True
    bars_hash: str = ""  # content hash of the bars the features were computed from
    adx_seed: str = "talib"

    def __post_init__(self) -> None:
        rows = len(self.time)
        for name in SERIES:
            if getattr(self, name).shape != (rows,):
                raise DataError(f"features: {name} has not {rows} rows, as time has")
        for name in ("market", "slow"):
            if getattr(self, name).shape != (rows, MARKET_DIM):
                raise DataError(f"features: {name} has not the shape ({rows}, {MARKET_DIM})")

    @classmethod
    def of_bars(cls, bars: Bars, **computed: Any) -> FeatureTable:
        """Return a whole history, row 0 is bar 0; computed: what bars do not say, by name."""
        return cls(first_bar=0, **{name: getattr(bars, name) for name in OF_BARS}, **computed)

    def __len__(self) -> int:
        return len(self.time)

    def __getitem__(self, column: str) -> npt.NDArray[Any]:
        """Return one column by its name in the Parquet file, shape [n]."""
        if column == "bar":
            return np.arange(self.first_bar, self.stop, dtype=np.int64)
        if column in SERIES:
            values: npt.NDArray[Any] = getattr(self, column)
            return values
        if column in FEATURES:
            return self.market[:, FEATURES.index(column)]
        if column in SLOW_FEATURES:
            return self.slow[:, SLOW_FEATURES.index(column)]
        raise KeyError(column)

    @property
    def stop(self) -> int:
        """The bar after the last one."""
        return self.first_bar + len(self)

    def slice(self, start: int, stop: int) -> FeatureTable:
        """Return the bars [start, stop) of the global axis, without copying.

        Raises:
            DataError: a bar outside this table.
        """
        if not self.first_bar <= start <= stop <= self.stop:
            raise DataError(
                f"features: bars [{start}, {stop}) are not within [{self.first_bar}, {self.stop})"
            )
        rows = slice(start - self.first_bar, stop - self.first_bar)
        columns = {name: getattr(self, name)[rows] for name in (*SERIES, "market", "slow")}
        return FeatureTable(first_bar=start, **columns, **self._provenance())

    def rows(self, start: int, stop: int) -> Floats:
        """Return market and slow features of bars [start, stop) side by side, float64[k, 84]."""
        part = self.slice(start, stop)
        return np.hstack([part.market, part.slow])

    def _provenance(self) -> dict[str, Any]:
        return {
            "volume_known": self.volume_known,
            "bars_hash": self.bars_hash,
            "adx_seed": self.adx_seed,
        }


def compute(bars: Bars, adx_seed: AdxSeed = "talib") -> FeatureTable:
    """Compute the features of a whole history; row 0 is bar 0 of the global axis.

    Raises:
        DataError: values that are not finite, negative volume (see `market_features`).
    """
    columns = (bars.open, bars.high, bars.low, bars.close, bars.volume, bars.roll, bars.time)
    market = market_features(*columns, volume_known=bars.volume_known, adx_seed=adx_seed)
    slow = slow_features(*columns, volume_known=bars.volume_known, adx_seed=adx_seed)
    return FeatureTable.of_bars(
        bars,
        sigma=market.sigma,
        cusum_event=market.event,
        market=market.features,
        slow=slow,
        bars_hash=bars.content_hash,
        adx_seed=adx_seed,
    )


def joined(tables: Sequence[FeatureTable]) -> FeatureTable:
    """Join tables of consecutive bars, given in order, into one.

    Raises:
        DataError: no table, a gap or an overlap, or features of different bars or settings.
    """
    if not tables:
        raise DataError("features: nothing to join; materialise the features of these windows")
    first = tables[0]
    for left, right in pairwise(tables):
        if left.stop != right.first_bar:
            raise DataError(
                f"features: a file ends before bar {left.stop}, the next one starts at bar "
                f"{right.first_bar}; compute the windows between them"
            )
        if right._provenance() != first._provenance():
            raise DataError(
                f"features: the file that starts at bar {right.first_bar} was computed from other "
                "bars or settings than the first one; compute the features again"
            )
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(table, name) for table in tables])
        for name in (*SERIES, "market", "slow")
    }
    return FeatureTable(first_bar=first.first_bar, **columns, **first._provenance())


def feature_hash(table: FeatureTable) -> str:
    """Return the SHA-256 (hex) of every value, the bar axis and the settings of a table."""
    digest = hashlib.sha256(f"{table.first_bar} {len(table)} {table._provenance()}".encode())
    for name in (*SERIES, *FEATURES, *SLOW_FEATURES):
        digest.update(np.ascontiguousarray(table[name]).tobytes())
    return digest.hexdigest()


@cache
def code_version() -> str:
    """Return a hash (16 hex digits) of this package's sources and the release of TA-Lib."""
    import talib

    digest = hashlib.sha256(talib.__version__.encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.name.encode() + source.read_bytes())
    return digest.hexdigest()[:16]
