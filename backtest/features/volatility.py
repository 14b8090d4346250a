"""Volatility of differences, in points: exponentially weighted sigma and Parkinson's range."""

from __future__ import annotations

import math

import numpy as np

from backtest.features.rolling import Floats, rolling_sum

SIGMA_HALF_LIFE = 60  # bars


def sigma(difference: Floats, half_life: float = SIGMA_HALF_LIFE) -> Floats:
    """Return the exponentially weighted standard deviation of differences about zero.

    var[1] = d[1]^2; var[b] = lam*var[b-1] + (1 - lam)*d[b]^2 with lam = 2^(-1/half_life).

    Args:
        difference: d, points, float64[n]; d[0] is not used.
        half_life: bars.

    Returns:
        Points, float64[n]; 0 at the first bar and while nothing has moved.
    """
    from scipy.signal import lfilter

    lam = 2.0 ** (-1.0 / half_life)
    variance = np.zeros_like(difference)
    if len(difference) > 1:
        square = difference[1:] * difference[1:]
        variance[1] = square[0]
        if len(square) > 1:
            variance[2:], _ = lfilter([1.0 - lam], [1.0, -lam], square[1:], zi=[lam * square[0]])
    # after a very long standstill the recursion gets stuck among the denormals
    variance[variance < np.finfo(np.float64).tiny] = 0.0
    return np.sqrt(variance)


def parkinson(high: Floats, low: Floats, window: int = 20) -> Floats:
    """Return sqrt(mean((high - low)^2)/(4 ln 2)), points, float64[n] (Parkinson 1980).

    On differences instead of log ratios, so that prices may be negative; 0 before it fills.
    """
    spread = high - low
    return np.sqrt(rolling_sum(spread * spread, window) / (window * 4.0 * math.log(2.0)))
