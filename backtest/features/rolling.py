"""Sums, extremes and moments of fixed windows whose bits depend on the window's values alone.

A sum is merged from blocks of 1, 2, 4, ... rows, always in the same order. No running sum is
carried, so neither later rows nor the array's length nor a large value long ago can change a row.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Block = tuple[Floats, ...]
Merge = Callable[[Block, int, Block, int], Block]

# Relative spread (squared) below which a window counts as constant: rounding of prices, not data.
CONSTANT = 1e-16


def quotient(numerator: Floats, denominator: Floats) -> Floats:
    """Return numerator/denominator, and 0 where the denominator is 0."""
    out = np.zeros(np.broadcast_shapes(numerator.shape, denominator.shape))
    with np.errstate(over="ignore"):
        np.divide(numerator, denominator, out=out, where=denominator != 0)
    return out


def lagged(x: Floats, lag: int) -> Floats:
    """Return x[b] - x[b-lag], and 0 for the first `lag` rows."""
    out = np.zeros_like(x)
    np.subtract(x[lag:], x[:-lag], out=out[lag:])
    return out


def rolling_sum(x: Floats, window: int) -> Floats:
    """Return the sum of the last `window` rows, float64[n]; 0 before the window fills."""
    return _merged((x,), window, lambda a, _, b, __: (a[0] + b[0],))[0]


def rolling_max(x: Floats, window: int) -> Floats:
    """Return the maximum of the last `window` rows, float64[n]; 0 before the window fills."""
    import talib

    return _extreme(talib.MAX, x, window)


def rolling_min(x: Floats, window: int) -> Floats:
    """Return the minimum of the last `window` rows, float64[n]; 0 before the window fills."""
    import talib

    return _extreme(talib.MIN, x, window)


def _extreme(function: Callable[[Floats, int], Floats], x: Floats, window: int) -> Floats:
    # an extreme has no rounding, so a search that remembers where it was gives the same bits
    if window == 1:  # TA-Lib begins at 2
        return x.copy()
    values = function(x, window)
    values[: window - 1] = 0.0
    return values


def rolling_moments(x: Floats, window: int) -> tuple[Floats, Floats]:
    """Return mean and sum of squared deviations of the last `window` rows, float64[n] each.

    The sum is exactly 0 for a constant window (blocks are merged by the pairwise rule of Chan,
    Golub and LeVeque 1979), and set to 0 where it is mere rounding of the mean. Rows before the
    window fills hold 0.
    """
    mean, squares = _merged((x, np.zeros_like(x)), window, _merge_moments)
    squares[squares <= CONSTANT * window * mean * mean] = 0.0
    return mean, squares


def _merge_moments(a: Block, n_a: int, b: Block, n_b: int) -> Block:
    delta = b[0] - a[0]
    mean = a[0] + delta * (n_b / (n_a + n_b))
    squares = delta * delta
    squares *= n_a * n_b / (n_a + n_b)
    squares += a[1]
    squares += b[1]
    return mean, squares


def _merged(x: Block, window: int, merge: Merge) -> Block:
    """Merge every run of `window` rows; block i of a level covers rows [i, i + width)."""
    n = len(x[0])
    if n < window:
        return tuple(np.zeros(n) for _ in x)
    level, width = x, 1
    total, covered = level, 0
    while width <= window:
        if window & width:
            rows = n - covered - width + 1
            right = _rows(level, covered, rows)
            total = merge(_rows(total, 0, rows), covered, right, width) if covered else right
            covered += width
        if 2 * width <= window:
            rows = n - 2 * width + 1
            level = merge(_rows(level, 0, rows), width, _rows(level, width, rows), width)
        width *= 2
    filled = tuple(np.zeros(n) for _ in x)
    for out, values in zip(filled, total, strict=True):
        out[window - 1 :] = values
    return filled


def _rows(block: Block, start: int, rows: int) -> Block:
    return tuple(values[start : start + rows] for values in block)
