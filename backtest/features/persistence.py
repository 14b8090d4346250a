"""Does a move continue: autocorrelation, variance ratio, efficiency ratio of differences.

`difference` is d[b] = close[b] - close[b-1]; row 0 has none, so n differences need n + 1 prices.
"""

from __future__ import annotations

import numpy as np

from backtest.features.rolling import Floats, lagged, quotient, rolling_moments, rolling_sum


def autocorrelation(difference: Floats, window: int = 60) -> Floats:
    """Return sum((d_i - m)(d_{i-1} - m))/sum((d_i - m)^2) of the last `window` d, float64[n].

    Both factors of a product lie in the window, so it has `window` - 1 products. By
    2ab = a^2 + b^2 - (a - b)^2 they are summed without the cancellation of sum(ab) - m^2.
    """
    mean, squares = rolling_moments(difference, window)
    step = lagged(difference, 1)
    last = difference - mean
    first = np.zeros_like(mean)
    full = mean[window - 1 :]
    first[window - 1 :] = difference[: len(full)] - full
    products = squares - 0.5 * (first * first + last * last + rolling_sum(step * step, window - 1))
    out = quotient(products, squares)
    out[:window] = 0.0
    return out


def variance_ratio(difference: Floats, close: Floats, lag: int = 5, window: int = 60) -> Floats:
    """Return var(d_lag)/(lag*var(d)), ddof 0, over the last `window` overlapping moves, float64[n].

    Lo and MacKinlay 1988, without their small-sample correction: 1 for a random walk.
    """
    _, short = rolling_moments(difference, window)
    _, long = rolling_moments(lagged(close, lag), window)
    out = quotient(long, lag * short)
    out[: window + lag - 1] = 0.0
    return out


def efficiency_ratio(difference: Floats, close: Floats, window: int = 20) -> Floats:
    """Return |close[b] - close[b-window]|/sum|d|, float64[n] in [0, 1] (Kaufman 1995)."""
    out = quotient(np.abs(lagged(close, window)), rolling_sum(np.abs(difference), window))
    out[:window] = 0.0
    return out
