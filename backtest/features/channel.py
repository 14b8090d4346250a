"""Place of the close in the Donchian channel."""

from __future__ import annotations

from backtest.features.rolling import Floats, quotient, rolling_max, rolling_min


def channel_place(high: Floats, low: Floats, close: Floats, window: int) -> Floats:
    """Return 2*(close - lo)/(hi - lo) - 1 over the last `window` bars, this one included.

    float64[n] in [-1, 1]; 0 in a channel without height and before the window fills.
    """
    bottom = rolling_min(low, window)
    height = rolling_max(high, window) - bottom
    place = quotient(2.0 * (close - bottom), height) - 1.0
    place[height <= 0] = 0.0
    return place
