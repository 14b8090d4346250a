"""Features beside pandas and TA-Lib, on one core; each pair of results is compared first.

Ours keep a promise that running sums break: a value depends on its window alone (prefixes give the
same bits). What has another seed is compared after it is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import talib

from backtest.features.adx import PERIOD, directional
from backtest.features.cusum import DRIFT, THRESHOLD, cusum_filter
from backtest.features.rolling import quotient, rolling_max, rolling_min, rolling_moments
from backtest.features.volatility import sigma
from backtest.market.layout import Array
from opencl.devices import Device
from tests.bench.features import Bars, random_bars
from tests.bench.rows import TIMES, Row, alternating

BARS, QUICK_BARS, LOOP_BARS = 1_000_000, 100_000, 20_000
SEED_FORGOTTEN = 1000  # rows
TOLERANCE = 1e-9  # of the largest value, except where a pair says otherwise
Columns = tuple[Array, ...]


@dataclass(frozen=True)
class Pair:
    """A feature, what computes it elsewhere, and how close the two must be."""

    name: str
    peer: str
    ours: Callable[[], Columns]
    theirs: Callable[[], Columns]
    bars: int
    first: int = 0  # row from which they are compared
    tolerance: float = TOLERANCE

    def check(self) -> None:
        """Compare all columns; a difference is an error."""
        for mine, other in zip(self.ours(), self.theirs(), strict=True):
            mine, other = mine[self.first :], np.asarray(other)[self.first :]
            gap = np.max(np.abs(mine - other)) / np.max(np.abs(mine))
            if not gap <= self.tolerance:
                raise AssertionError(f"{self.name} differs from {self.peer}'s; not timed")

    def row(self) -> Row:
        """Time both by turns."""
        mine, other = alternating(self.ours, self.theirs)
        rates = f"{self.bars / mine:,.0f} bars/s beside {self.bars / other:,.0f}"
        detail = f"{rates}; {self.bars:,} bars, one core"
        return Row(f"{self.name}, against {self.peer}", other / mine, TIMES, detail)


def run(device: Device, quick: bool = False) -> list[Row]:
    """Measure the host; the device does not matter."""
    few, many = random_bars(LOOP_BARS), random_bars(QUICK_BARS if quick else BARS)
    found = pairs(many, few)
    for pair in found:
        pair.check()
    return [pair.row() for pair in found]


def pairs(bars: Bars, few: Bars) -> tuple[Pair, ...]:
    """Return what is compared; the plain loop gets fewer bars."""
    high, low, close = bars.high, bars.low, bars.close
    n, prices, change = len(close), pd.Series(close), np.diff(close, prepend=close[0])
    moves, scaled = prices.diff(), quotient(few.difference, sigma(few.difference))
    top, bottom = pd.Series(high), pd.Series(low)

    def moments() -> Columns:
        mean, squares = rolling_moments(close, 60)
        return mean, np.sqrt(squares / 60)

    def rolling_pandas() -> Columns:
        window = prices.rolling(60)
        return window.mean(), window.std(ddof=0)

    def talib_directional() -> Columns:
        names = (talib.PLUS_DI, talib.MINUS_DI, talib.DX, talib.ADX)
        return tuple(name(high, low, close, PERIOD) for name in names)

    wilder = "+DI, -DI, DX and ADX, Wilder's seed"
    return (
        Pair(
            "+DI, -DI, DX and ADX, TA-Lib's seed",
            "pandas",
            lambda: directional(high, low, close),
            lambda: pandas_directional(top, bottom, prices),
            n,
            SEED_FORGOTTEN,
        ),
        Pair(
            wilder,
            "TA-Lib",
            lambda: directional(high, low, close, "wilder"),
            talib_directional,
            n,
            SEED_FORGOTTEN,
        ),
        Pair(
            "sigma of differences",
            "pandas",
            lambda: (sigma(change),),
            lambda: (np.sqrt((moves**2).ewm(halflife=60, adjust=False).mean()),),
            n,
            1,
        ),
        # pandas carries a running sum of squares of prices, which loses digits
        Pair("mean and deviation of 60", "pandas", moments, rolling_pandas, n, 60, 1e-6),
        Pair(
            "highest and lowest of 55",
            "pandas",
            lambda: (rolling_max(high, 55), rolling_min(low, 55)),
            lambda: (top.rolling(55).max(), bottom.rolling(55).min()),
            n,
            55,
        ),
        Pair(
            "CUSUM filter",
            "a plain loop",
            lambda: (cusum_filter(scaled, DRIFT, THRESHOLD).level,),
            lambda: (plain_cusum(scaled),),
            len(scaled),
            tolerance=0.0,
        ),
    )


def pandas_directional(high: pd.Series, low: pd.Series, close: pd.Series) -> Columns:
    """Return +DI, -DI, DX and ADX as they are usually written with pandas."""
    up, down, before = high.diff(), -low.diff(), close.shift()
    ranges = pd.concat([high - low, (high - before).abs(), (low - before).abs()], axis=1).max(
        axis=1
    )

    def smooth(x: pd.Series) -> pd.Series:
        return x.ewm(alpha=1 / PERIOD, adjust=False).mean()

    average = smooth(ranges)
    plus = 100 * smooth(up.where((up > down) & (up > 0), 0.0)) / average
    minus = 100 * smooth(down.where((down > up) & (down > 0), 0.0)) / average
    dx = 100 * (plus - minus).abs() / (plus + minus)
    return plus, minus, dx, smooth(dx)


def plain_cusum(x: Array) -> Array:
    """Return the level of the two-sided filter, bar after bar."""
    level, up, down = np.empty(len(x)), 0.0, 0.0
    for i, move in enumerate(x.tolist()):
        up, down = max(0.0, up + move - DRIFT), max(0.0, down - move - DRIFT)
        level[i] = max(up, down)
        if down > THRESHOLD:
            down = 0.0
        elif up > THRESHOLD:
            up = 0.0
    return level
