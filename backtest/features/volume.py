"""Volume features: z-score, ratio of averages, signed imbalance, zero-volume flag."""

from __future__ import annotations

import numpy as np

from backtest.features.rolling import Floats, quotient, rolling_moments, rolling_sum


def volume_z(volume: Floats, window: int = 60) -> Floats:
    """Return the z-score (ddof 0) of log1p(volume) in its own last `window` bars, float64[n]."""
    size = np.log1p(volume)
    mean, squares = rolling_moments(size, window)
    return quotient(size - mean, np.sqrt(squares / window))


def volume_ratio(volume: Floats, short: int = 5, long: int = 60) -> Floats:
    """Return mean volume of `short` over that of `long` bars, float64[n]; 0 until `long` fill."""
    return quotient(rolling_sum(volume, short) / short, rolling_sum(volume, long) / long)


def volume_imbalance(volume: Floats, difference: Floats, window: int = 20) -> Floats:
    """Return sum(sign(d)*v)/sum(v) of the last `window` bars with a difference, float64[n]."""
    signed = rolling_sum(np.sign(difference) * volume, window)
    share = quotient(signed, rolling_sum(volume, window))
    share[:window] = 0.0  # the first bar has no difference
    return share
