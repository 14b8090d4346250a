"""The 42 market features of one series of bars, in the order of `backtest.features.names`.

Row b is made from rows <= b alone, and its bits do not depend on how many rows follow.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from backtest.errors import DataError
from backtest.features.adx import AdxSeed, directional
from backtest.features.calendar import day_of_week, time_of_day
from backtest.features.channel import channel_place
from backtest.features.cusum import DRIFT, THRESHOLD, cusum_filter
from backtest.features.names import ADX, CHANNELS, CUSUM, FEATURE_LIMIT, FEATURES, LAGS, MARKET_DIM
from backtest.features.oscillators import average_true_range, cci, macd, rsi, stochastic
from backtest.features.persistence import autocorrelation, efficiency_ratio, variance_ratio
from backtest.features.prices import Prices, checked, forward_adjusted
from backtest.features.rolling import Floats, lagged, quotient
from backtest.features.volatility import parkinson, sigma
from backtest.features.volume import volume_imbalance, volume_ratio, volume_z


class Market(NamedTuple):
    """Features of n bars with what the market itself needs beside them."""

    features: Floats  # float64[n, 42]
    sigma: Floats  # points, float64[n]
    event: npt.NDArray[np.int8]  # CUSUM event: +1 up, -1 down, 0 none


# prices beyond float64 arithmetic end in _require_finite, which names the bar
@np.errstate(over="ignore", invalid="ignore")
def market_features(
    open_: npt.ArrayLike,
    high: npt.ArrayLike,
    low: npt.ArrayLike,
    close: npt.ArrayLike,
    volume: npt.ArrayLike,
    roll: npt.ArrayLike,
    time: npt.ArrayLike,
    *,
    volume_known: bool = True,
    adx_seed: AdxSeed = "talib",
) -> Market:
    """Compute the 42 features of every bar, all finite; 0 before a window fills.

    Args:
        open_: prices, points, shape [n]; likewise high, low, close. May be negative.
        high: see open_.
        low: see open_.
        close: see open_.
        volume: >= 0, shape [n].
        roll: whether open[b] is the first price of a new contract, bool[n].
        time: close of the bar, ns UTC, int64[n].
        volume_known: False turns the volume features to 0.
        adx_seed: seeding of DI, DX and ADX.

    Raises:
        DataError: columns of different lengths, a value that is not finite, negative volume.
    """
    rows = np.shape(close)[0]
    o, h, lo, c, v = (
        checked(name, values, rows)
        for name, values in (
            ("open", open_),
            ("high", high),
            ("low", low),
            ("close", close),
            ("volume", volume),
        )
    )
    if (v < 0).any():
        row = int(np.argmax(v < 0))
        raise DataError(f"features: volume = {v[row]:g} at row {row}; volume cannot be negative")
    rolls, times = np.asarray(roll, dtype=np.bool_), np.asarray(time, dtype=np.int64)
    if rolls.shape != (rows,) or times.shape != (rows,):
        raise DataError(f"features: roll {rolls.shape} or time {times.shape} has not {rows} rows")
    # columns are written and read one at a time, by Parquet too
    out = np.zeros((rows, MARKET_DIM), order="F")
    if rows == 0:
        return Market(out, c, np.zeros(0, np.int8))
    prices = forward_adjusted(o, h, lo, c, rolls)
    scale = sigma(prices.difference)
    _moves(out, prices, scale)
    if volume_known:
        out[:, 22] = volume_z(v)
        out[:, 23] = volume_ratio(v)
        out[:, 24] = volume_imbalance(v, prices.difference)
        out[:, 25] = v == 0
    out[:, 33] = autocorrelation(prices.difference)
    out[:, 34] = variance_ratio(prices.difference, prices.close)
    out[:, 35] = efficiency_ratio(prices.difference, prices.close)
    out[:, 36], out[:, 37] = time_of_day(times)
    out[:, 38], out[:, 39] = day_of_week(times)
    _indicators(out, prices, scale, adx_seed)
    raw = directional(prices.high, prices.low, prices.close, adx_seed)
    out[:, 30], out[:, 31], out[:, 32] = raw.plus_di / 100, raw.minus_di / 100, raw.dx / 100
    for column in range(MARKET_DIM):
        np.clip(out[:, column], -FEATURE_LIMIT, FEATURE_LIMIT, out=out[:, column])
    cusum = cusum_filter(quotient(prices.difference, scale), DRIFT, THRESHOLD)
    out[:, ADX] = raw.adx
    out[:, CUSUM] = cusum.level / THRESHOLD
    _require_finite(out)
    return Market(out, scale, cusum.event)


def _moves(out: Floats, prices: Prices, scale: Floats) -> None:
    """Columns 0-21: what moved, in sigmas, and where the close stands."""
    o, h, lo, c, difference = prices
    for column, lag in enumerate(LAGS):
        move = difference if lag == 1 else lagged(c, lag)
        out[:, column] = quotient(move, scale * math.sqrt(lag))
    out[:, 10] = quotient(c - o, scale)
    out[:, 11] = quotient(h - lo, scale)
    out[:, 12] = quotient(h - np.maximum(o, c), scale)
    out[:, 13] = quotient(np.minimum(o, c) - lo, scale)
    for column, width in enumerate(CHANNELS, start=14):
        out[:, column] = channel_place(h, lo, c, width)
    out[:, 18] = quotient(sigma(difference, 8), scale)
    out[:, 19] = quotient(sigma(difference, 21), scale)
    out[:, 20] = quotient(average_true_range(h, lo, c), scale)
    out[:, 21] = quotient(parkinson(h, lo), scale)


def _indicators(out: Floats, prices: Prices, scale: Floats, adx_seed: AdxSeed) -> None:
    """Columns 26-29: oscillators."""
    _, h, lo, c, _ = prices
    out[:, 26] = rsi(c)
    out[:, 27] = stochastic(h, lo, c)
    out[:, 28] = np.clip(cci(h, lo, c) / 200.0, -5.0, 5.0)
    out[:, 29] = quotient(macd(c), scale)


def _require_finite(out: Floats) -> None:
    for column, name in enumerate(FEATURES):
        finite = np.isfinite(out[:, column])
        if not finite.all():
            row = int(np.argmin(finite))
            raise DataError(
                f"features: {name} is {out[row, column]} at row {row}; the prices around it are "
                "too large for float64 arithmetic, or TA-Lib's unstable period was changed"
            )
