"""The same 42 features on bars five times as long, seen at each bar once they have closed.

Slow bar j holds bars [5j, 5j+5) of the global axis and is known from the close of bar 5j+4 on.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from backtest.features.adx import AdxSeed
from backtest.features.calendar import Times
from backtest.features.market import market_features
from backtest.features.names import MARKET_DIM, SLOW_SCALE
from backtest.features.prices import forward_adjusted
from backtest.features.rolling import Floats


def slow_features(
    open_: Floats,
    high: Floats,
    low: Floats,
    close: Floats,
    volume: Floats,
    roll: npt.NDArray[np.bool_],
    time: Times,
    *,
    volume_known: bool = True,
    adx_seed: AdxSeed = "talib",
) -> Floats:
    """Return features of the last closed slow bar at each bar, float64[n, 42]; 0 before the first.

    Row 0 must be bar 0 of the global axis. A roll inside a slow bar has its gap in the middle of
    it, so prices are adjusted before they are grouped and the slow series itself has no rolls.
    """
    prices = forward_adjusted(open_, high, low, close, roll)
    rows = len(close)
    groups = rows // SLOW_SCALE

    def grouped(values: Floats) -> Floats:
        return values[: groups * SLOW_SCALE].reshape(groups, SLOW_SCALE)

    last = slice(SLOW_SCALE - 1, groups * SLOW_SCALE, SLOW_SCALE)
    high_of, low_of, volumes = grouped(prices.high), grouped(prices.low), grouped(volume)
    top, bottom, total = high_of[:, 0], low_of[:, 0], volumes[:, 0]
    for step in range(1, SLOW_SCALE):
        top = np.maximum(top, high_of[:, step])
        bottom = np.minimum(bottom, low_of[:, step])
        total = total + volumes[:, step]
    slow = market_features(
        grouped(prices.open)[:, 0],
        top,
        bottom,
        prices.close[last],
        total,
        np.zeros(groups, dtype=np.bool_),
        time[last],
        volume_known=volume_known,
        adx_seed=adx_seed,
    ).features
    out = np.zeros((rows, MARKET_DIM), order="F")
    for column in range(MARKET_DIM):
        known = np.repeat(slow[:, column], SLOW_SCALE)
        out[SLOW_SCALE - 1 :, column] = known[: max(rows - SLOW_SCALE + 1, 0)]
    return out
