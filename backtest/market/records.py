"""From feature rows to the `Bar` records that the market reads."""

from __future__ import annotations

import numpy as np

from backtest.features.names import ADX, CUSUM
from backtest.features.table import FeatureTable
from backtest.market.layout import BAR, Array, BarFlag


def bar_records(table: FeatureTable, base: float, volume_known: bool) -> Array:
    """Return the `Bar` records [n] of a feature table; the only place that subtracts the base."""
    records = np.zeros(len(table), BAR.dtype)
    for name in ("open", "high", "low", "close"):
        records[name] = getattr(table, name) - base
    records["sigma"] = table.sigma
    records["adx"] = table.market[:, ADX]
    records["cusum"] = table.market[:, CUSUM]
    flags = np.where(table.roll, BarFlag.ROLL, 0)
    if volume_known:
        flags = flags | np.where(table.volume == 0, BarFlag.NO_VOLUME, 0)
    records["flags"] = flags
    return records
