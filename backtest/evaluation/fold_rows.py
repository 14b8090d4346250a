"""The rows that describe a fold itself: its windows, and the features it was fitted on."""

from __future__ import annotations

from typing import Any

import numpy as np

from backtest.data.bars import Bars
from backtest.features.names import COLUMNS
from backtest.features.scaler import Scaler
from backtest.features.table import FeatureTable
from backtest.identity import rows_hash
from backtest.splits import Fold, Window


def fold_row(fold: Fold, bars: Bars, features_hash: str | None) -> dict[str, Any]:
    """Return the row of table fold, without the columns that its header knows.

    Args:
        fold: the fold; one outside the history has no bars.
        bars: the whole history, of which the row describes [0, test.stop) only.
        features_hash: of the test window's feature rows; None without a result.
    """
    row: dict[str, Any] = {"index": fold.index, "fold_key": fold.key}
    known = fold.index >= 0
    for name in ("train", "validation", "test"):
        window: Window = getattr(fold, name)
        first, last = (window.start, window.stop - 1) if len(window) else (None, None)
        for end, bar, closed in (("start", window.start, first), ("stop", window.stop, last)):
            row[f"{name}_{end}"] = bar if known else None
            row[f"{name}_{end}_time"] = None if closed is None else int(bars.time[closed])
    return row | {
        "n_bars": len(fold.test),
        "status": fold.status,
        "reason": fold.reason or None,
        "features_hash": features_hash,
        "bars_hash": rows_hash(bars, fold.test.stop) if known else None,
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
