"""The rows that describe a fold itself: its windows, and the features it was fitted on."""

from __future__ import annotations

from typing import Any

import numpy as np

from backtest.data.bars import Bars
from backtest.features.names import COLUMNS
from backtest.features.scaler import Scaler
from backtest.features.table import FeatureTable
from backtest.splits import Fold


def fold_row(fold: Fold, bars: Bars, features_hash: str | None) -> dict[str, Any]:
    """Return the row of table fold, without the columns that its header knows."""
    row: dict[str, Any] = {"index": fold.index, "fold_key": fold.key}
    for name in ("train", "validation", "test"):
        window = getattr(fold, name)
        for end in ("start", "stop"):
            bar = getattr(window, end) if fold.index >= 0 else None
            row[f"{name}_{end}"] = bar
            inside = bar is not None and bar < len(bars)
            row[f"{name}_{end}_time"] = int(bars.time[bar]) if inside else None
    return row | {
        "n_bars": len(fold.test),
        "status": fold.status,
        "reason": fold.reason or None,
        "features_hash": features_hash,
        "bars_hash": bars.content_hash,
    }


def feature_rows(table: FeatureTable, fold: Fold, scaler: Scaler) -> list[dict[str, Any]]:
    """Return the rows of table feature_stat: test window against what train fitted."""
    rows = table.rows(fold.test.start, fold.test.stop)
    return [
        {
            "feature": name,
            "mean": float(np.nanmean(column)),
            "std": float(np.nanstd(column)),
            "min": float(np.nanmin(column)),
            "max": float(np.nanmax(column)),
            "nan": int(np.isnan(column).sum()),
            "train_center": float(center),
            "train_scale": float(scale),
        }
        for name, column, center, scale in zip(
            COLUMNS, rows.T, scaler.center, scaler.scale, strict=True
        )
    ]
