"""The part of the state vector that depends on the bar alone: 115 of the 128 slots.

Columns follow `backtest.market.layout.BAR_SLOTS`: 0-41 market, 42-83 slow, 84-111 differences,
121 aux, 126-127 day of year.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from backtest.errors import ConfigError, DataError
from backtest.features.calendar import day_of_year
from backtest.features.names import COLUMNS, FEATURE_LIMIT
from backtest.features.prices import differences
from backtest.features.scaler import Scaler
from backtest.features.table import FeatureTable
from backtest.market.layout import AUX_SLOT, BAR_SLOTS

RECENT = 28  # differences in the state, so as many bars of history
_BLOCK = 65_536  # rows scaled at a time, to bound the float64 copies

_DIFFERENCES = BAR_SLOTS.index(len(COLUMNS))
_AUX = BAR_SLOTS.index(AUX_SLOT)
_YEAR = BAR_SLOTS.index(126)


def bar_state(
    table: FeatureTable,
    scaler: Scaler,
    *,
    tick_size: float,
    start: int | None = None,
    stop: int | None = None,
    aux: npt.ArrayLike | None = None,
) -> npt.NDArray[np.float32]:
    """Return the bar slots of bars [start, stop), float32[stop - start, 115].

    Differences are d[b-27]..d[b], oldest first, each over max(sigma[b], tick_size), clipped to
    +-10; before bar 1 there is none and the slot holds 0.

    Args:
        table: must reach back to bar start - 28, unless it begins at bar 0.
        scaler: fitted on the fold's train rows.
        tick_size: points, > 0.
        start: first bar, default the table's first.
        stop: bar after the last, default the table's.
        aux: direction forecast in [-1, 1] of each bar [stop - start], default 0.

    Raises:
        DataError: bars outside the table, missing history, aux of another length.
        ConfigError: tick_size <= 0.
    """
    start = table.first_bar if start is None else start
    stop = table.stop if stop is None else stop
    if not tick_size > 0:
        raise ConfigError(f"[tick_size] must be > 0 points (given {tick_size:g})")
    if table.first_bar > max(start - RECENT, 0):
        raise DataError(
            f"state: bar {start} needs bars from {max(start - RECENT, 0)} on, the table begins at "
            f"bar {table.first_bar}; pass a longer table and start = {start}"
        )
    part = table.slice(start, stop)
    out = np.zeros((len(part), len(BAR_SLOTS)), dtype=np.float32)
    history = table.slice(max(start - RECENT, 0), stop)
    moves = differences(history.open, history.close, history.roll)
    # one row of RECENT before the first bar; bars before bar 1 have no difference
    moves = np.concatenate([np.zeros(RECENT - (len(history) - len(part))), moves])
    windows = np.lib.stride_tricks.sliding_window_view(moves[1:], RECENT)
    scale = np.maximum(part.sigma, tick_size)
    for first in range(0, len(part), _BLOCK):
        rows = slice(first, first + _BLOCK)
        features = np.hstack([part.market[rows], part.slow[rows]])
        out[rows, : len(COLUMNS)] = scaler.transform(features)
        recent = windows[rows] / scale[rows, None]
        np.clip(recent, -FEATURE_LIMIT, FEATURE_LIMIT, out=recent)
        out[rows, _DIFFERENCES : _DIFFERENCES + RECENT] = recent
    if aux is not None:
        forecast = np.asarray(aux)
        if forecast.shape != (len(part),):
            raise DataError(f"state: aux has shape {forecast.shape}, expected ({len(part)},)")
        out[:, _AUX] = forecast
    out[:, _YEAR], out[:, _YEAR + 1] = day_of_year(part.time)
    return out
