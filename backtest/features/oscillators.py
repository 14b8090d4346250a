"""RSI, stochastic, CCI, MACD and average true range, computed by TA-Lib.

Each result is 0 before its first value and where rounding, not the market, would decide it.
"""

from __future__ import annotations

import numpy as np

from backtest.features.rolling import Floats, rolling_max, rolling_min

# Differences of price averages below this multiple of the price are rounding.
ROUNDING = 64 * float(np.finfo(np.float64).eps)


def rsi(close: Floats) -> Floats:
    """Return RSI of 14 bars as 0-1, float64[n]."""
    import talib

    return _from(talib.RSI(close, 14), 14) / 100.0


def stochastic(high: Floats, low: Floats, close: Floats) -> Floats:
    """Return fast %K of 14 bars as 0-1, float64[n]."""
    import talib

    return _from(talib.STOCHF(high, low, close, 14, 1, 0)[0], 13) / 100.0


def cci(high: Floats, low: Floats, close: Floats) -> Floats:
    """Return CCI of 20 bars in its own unit (+-100 is ordinary), float64[n]."""
    import talib

    values = _from(talib.CCI(high, low, close, 20), 19)
    typical = (high + low + close) / 3.0
    top, bottom = rolling_max(typical, 20), rolling_min(typical, 20)
    # equal typical prices leave the rounding of their mean over the rounding of their mean
    values[top - bottom <= ROUNDING * np.maximum(np.abs(top), np.abs(bottom))] = 0.0
    return values


def macd(close: Floats) -> Floats:
    """Return the MACD histogram 12/26/9 in points, float64[n]."""
    import talib

    values = _from(talib.MACD(close, 12, 26, 9)[2], 33)
    # at a standstill sigma decays to nothing, and the rounding of the averages would fill the scale
    values[np.abs(values) <= ROUNDING * np.maximum.accumulate(np.abs(close))] = 0.0
    return values


def average_true_range(high: Floats, low: Floats, close: Floats) -> Floats:
    """Return ATR of 14 bars in points, float64[n]."""
    import talib

    return _from(talib.ATR(high, low, close, 14), 14)


def _from(values: Floats, first: int) -> Floats:
    """Put 0 for TA-Lib's NaN before row `first`."""
    values[:first] = 0.0
    return values
