"""Scaler: centre and spread of the 84 features on train rows, stored with the policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from backtest.errors import ConfigError, DataError
from backtest.features.names import COLUMNS
from backtest.features.rolling import Floats

CLIP = 5.0  # spreads


@dataclass(frozen=True)
class Scaler:
    """(x - center)/scale, clipped to +-5; market and slow features have their own columns."""

    center: Floats  # float64[84]
    scale: Floats  # float64[84], > 0

    @classmethod
    def fit(cls, rows: Floats, kind: Literal["robust", "standard"] = "robust") -> Scaler:
        """Fit on train rows, float64[n, 84] (`FeatureTable.rows`).

        Args:
            rows: market features, then slow ones.
            kind: "robust" = median and interquartile range, "standard" = mean and standard
                deviation (ddof 0). A column without spread gets scale 1.

        Raises:
            DataError: no rows, another width, or a value that is not finite.
            ConfigError: an unknown kind.
        """
        if rows.ndim != 2 or rows.shape[1] != len(COLUMNS) or not len(rows):
            raise DataError(f"scaler: rows of shape {rows.shape}, expected (n > 0, {len(COLUMNS)})")
        center, scale = np.empty(len(COLUMNS)), np.empty(len(COLUMNS))
        for column, name in enumerate(COLUMNS):
            values = np.ascontiguousarray(rows[:, column])
            if not np.isfinite(values).all():
                row = int(np.argmin(np.isfinite(values)))
                raise DataError(
                    f"scaler: {name} is {values[row]} at train row {row}; compute the features "
                    "again from clean bars"
                )
            if kind == "robust":
                low, center[column], high = np.quantile(values, (0.25, 0.5, 0.75))
                scale[column] = high - low
            elif kind == "standard":
                center[column], scale[column] = values.mean(), values.std()
            else:
                raise ConfigError(f"[features.scaler] {kind!r} is not robust or standard")
            # the mean of equal values carries rounding, which is no spread
            if scale[column] <= 1e-12 * abs(center[column]):
                scale[column] = 1.0
        return cls(center, scale)

    def transform(self, rows: Floats) -> Floats:
        """Return scaled rows, float64[n, 84], clipped to +-5."""
        return np.clip((rows - self.center) / self.scale, -CLIP, CLIP)

    def arrays(self) -> dict[str, Floats]:
        """Return the arrays to store with a policy; `from_arrays` reads them back."""
        return {"scaler_center": self.center, "scaler_scale": self.scale}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Scaler:
        """Rebuild a scaler from what `arrays` returned; other keys are ignored."""
        center, scale = (
            np.asarray(arrays[key], dtype=np.float64) for key in ("scaler_center", "scaler_scale")
        )
        return cls(center, scale)
