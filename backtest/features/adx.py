"""Wilder's directional movement: +DI, -DI, DX and ADX of 14 bars (Wilder 1978).

Two seedings exist. TA-Lib starts its sums with 13 bars and one smoothing step; Wilder's book and
StockCharts sum 14 bars. They differ by up to 0.81 points at first, by < 0.0004 after 150 bars.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from backtest.errors import ConfigError
from backtest.features.rolling import Floats, quotient

AdxSeed = Literal["talib", "wilder"]
PERIOD = 14  # bars
FIRST_DI = PERIOD  # row of the first DI and DX; one row more than the ranges it sums
FIRST_ADX = 2 * PERIOD - 1  # row of the first ADX, the mean of 14 DX


class Directional(NamedTuple):
    """Directional movement, 0-100, float64[n] each; 0 before the first value."""

    plus_di: Floats
    minus_di: Floats
    dx: Floats
    adx: Floats


def directional(high: Floats, low: Floats, close: Floats, seed: AdxSeed = "talib") -> Directional:
    """Return +DI, -DI, DX and ADX of finite prices, float64[n].

    Raises:
        ConfigError: a seed other than "talib" and "wilder".
    """
    if seed == "talib":
        return _talib(high, low, close)
    if seed == "wilder":
        return _wilder(high, low, close)
    raise ConfigError(f"[features.adx_seed] {seed!r} is not talib or wilder")


def _talib(high: Floats, low: Floats, close: Floats) -> Directional:
    import talib

    functions = (talib.PLUS_DI, talib.MINUS_DI, talib.DX, talib.ADX)
    rows = [function(high, low, close, PERIOD) for function in functions]
    for values, first in zip(rows, (FIRST_DI, FIRST_DI, FIRST_DI, FIRST_ADX), strict=True):
        values[:first] = 0.0
    return Directional(*rows)


def _wilder(high: Floats, low: Floats, close: Floats) -> Directional:
    up, down = np.diff(high), -np.diff(low)
    before = close[:-1]
    true_range = np.maximum(high[1:], before) - np.minimum(low[1:], before)
    ranges = _smoothed_sum(true_range)
    plus = 100.0 * quotient(_smoothed_sum(np.where((up > down) & (up > 0), up, 0.0)), ranges)
    minus = 100.0 * quotient(_smoothed_sum(np.where((down > up) & (down > 0), down, 0.0)), ranges)
    dx = 100.0 * quotient(np.abs(plus - minus), plus + minus)
    adx = np.zeros_like(dx)
    if len(dx) > FIRST_ADX:
        adx[FIRST_ADX] = np.cumsum(dx[FIRST_DI : FIRST_ADX + 1])[-1] / PERIOD
        adx[FIRST_ADX + 1 :] = _decayed(dx[FIRST_ADX + 1 :] / PERIOD, adx[FIRST_ADX])
    return Directional(plus, minus, dx, adx)


def _smoothed_sum(x: Floats) -> Floats:
    """Sum rows 1..14, then S = S - S/14 + x; x begins at row 1, the result at row 0."""
    out = np.zeros(len(x) + 1)
    if len(x) >= PERIOD:
        out[PERIOD] = np.cumsum(x[:PERIOD])[-1]
        out[PERIOD + 1 :] = _decayed(x[PERIOD:], out[PERIOD])
    return out


def _decayed(x: Floats, start: float) -> Floats:
    """Return s[i] = s[i-1]*13/14 + x[i] with s[-1] = start."""
    from scipy.signal import lfilter

    if not len(x):
        return x
    keep = 1.0 - 1.0 / PERIOD
    values: Floats = lfilter([1.0], [1.0, -keep], x, zi=[keep * start])[0]
    return values
