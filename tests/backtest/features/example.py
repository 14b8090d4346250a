"""Synthetic bars on a dyadic tick, so that sums and shifts of prices are exact in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from backtest.data.bars import Bars
from backtest.features.market import Market, market_features

TICK = 0.25
MINUTE = 60_000_000_000  # ns


def random_bars(n: int, seed: int = 0, start: float = 5000.0, minutes: int = 7) -> Bars:
    """Random-walk bars whose open equals the close before, with some volumes of zero."""
    rng = np.random.default_rng(seed)
    close = start + TICK * np.cumsum(np.round(rng.normal(0, 5, n)))
    open_ = np.concatenate([[start], close[:-1]])
    high = np.maximum(open_, close) + TICK * rng.integers(0, 6, n)
    low = np.minimum(open_, close) - TICK * rng.integers(0, 6, n)
    volume = rng.integers(0, 60, n).astype(np.float64)
    time = 1_546_300_800_000_000_000 + np.arange(1, n + 1, dtype=np.int64) * minutes * MINUTE
    return bars(open_, high, low, close, volume, time)


def bars(
    open_: npt.NDArray[np.float64],
    high: npt.NDArray[np.float64],
    low: npt.NDArray[np.float64],
    close: npt.NDArray[np.float64],
    volume: npt.NDArray[np.float64] | None = None,
    time: npt.NDArray[np.int64] | None = None,
    roll: npt.NDArray[np.bool_] | None = None,
) -> Bars:
    """Bars from columns; volume 1, one bar a minute and no roll unless given."""
    n = len(close)
    stamps = np.arange(1, n + 1, dtype=np.int64) * MINUTE if time is None else time
    return Bars(
        instrument="TEST",
        time=stamps,
        open=open_,
        high=high,
        low=low,
        close=close,
        volume=np.ones(n) if volume is None else volume,
        roll=np.zeros(n, dtype=np.bool_) if roll is None else roll,
        session=(stamps // (1440 * MINUTE)).astype(np.int32),
    )


def rolled(source: Bars, gaps: dict[int, float]) -> Bars:
    """The same bars as contracts: every price from bar b on is higher by the gap of b."""
    shift = np.zeros(len(source))
    roll = np.zeros(len(source), dtype=np.bool_)
    for bar, gap in gaps.items():
        shift[bar:] += gap
        roll[bar] = True
    columns = (source.open, source.high, source.low, source.close)
    return bars(*(column + shift for column in columns), source.volume, source.time, roll)


def features_of(source: Bars, **options: Any) -> Market:
    """The 42 features of bars."""
    return market_features(
        source.open,
        source.high,
        source.low,
        source.close,
        source.volume,
        source.roll,
        source.time,
        **options,
    )
