"""Prices without contract rolls: the gap at a roll is taken out of every later price.

Forward adjustment subtracts the gaps so far, so adjusting more bars never changes earlier ones.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from backtest.errors import DataError
from backtest.features.rolling import Floats


class Prices(NamedTuple):
    """Forward-adjusted prices and their close-to-close differences, points, float64[n] each."""

    open: Floats
    high: Floats
    low: Floats
    close: Floats
    difference: Floats  # 0 at the first bar, which has no predecessor


def differences(open_: Floats, close: Floats, roll: npt.NDArray[np.bool_]) -> Floats:
    """Return close[b] - close[b-1] without the roll gap, which leaves close[b] - open[b] there."""
    out = np.zeros_like(close)
    np.subtract(close[1:], close[:-1], out=out[1:])
    rolls = np.flatnonzero(roll[1:]) + 1
    out[rolls] = close[rolls] - open_[rolls]
    return out


def forward_adjusted(
    open_: Floats, high: Floats, low: Floats, close: Floats, roll: npt.NDArray[np.bool_]
) -> Prices:
    """Return prices minus the sum of the roll gaps up to each bar.

    The gap of a roll bar b is open[b] - close[b-1]; a roll flag on the first bar has no gap.
    """
    difference = differences(open_, close, roll)
    rolls = np.flatnonzero(roll[1:]) + 1
    if not len(rolls):
        return Prices(open_, high, low, close, difference)
    gap = np.zeros_like(close)
    gap[rolls] = open_[rolls] - close[rolls - 1]
    gaps = np.cumsum(gap)
    return Prices(open_ - gaps, high - gaps, low - gaps, close - gaps, difference)


def checked(column: str, values: npt.ArrayLike, rows: int) -> Floats:
    """Return `values` as contiguous float64[rows].

    Raises:
        DataError: another shape, or a value that is not finite; one NaN would freeze the
            indicators of TA-Lib for good without a trace.
    """
    out: npt.NDArray[Any] = np.ascontiguousarray(values, dtype=np.float64)
    if out.shape != (rows,):
        raise DataError(f"features: column {column} has shape {out.shape}, close has {rows} rows")
    finite = np.isfinite(out)
    if not finite.all():
        row = int(np.argmin(finite))
        raise DataError(
            f"features: {column} = {out[row]} at row {row} ({int((~finite).sum())} such rows); "
            "drop or repair these bars when ingesting (issue policy not_finite)"
        )
    return out
