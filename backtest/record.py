"""The stitched out-of-sample record of a study, read from the published store for pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from backtest.lake import Lake
from backtest.queries import connect


@dataclass(frozen=True, eq=False)
class Line:
    """Equity of one policy or baseline over all complete folds.

    Attributes:
        label: for people, such as "policy seed 0" or "buy and hold".
        learned: a policy, not a baseline.
        time: datetime64[us][n], bar closes, UTC.
        equity: float64[n], currency, compounded over folds.
    """

    label: str
    learned: bool
    time: npt.NDArray[np.datetime64]
    equity: npt.NDArray[np.float64]


def stitched(lake: Lake, study_id: str, instrument: str) -> list[Line]:
    """Return the lines of an instrument, policies by seed and then baselines by name.

    Raises:
        StoreError: there is no store.
    """
    with connect(lake) as connection:
        columns = connection.execute(
            "SELECT seed, variant, time, equity FROM oos_equity WHERE study_id = ? "
            "AND instrument = ? AND variant <> 'chosen' ORDER BY seed, variant, bar",
            [study_id, instrument],
        ).fetchnumpy()
    keys = list(zip(columns["seed"].tolist(), columns["variant"].tolist(), strict=True))
    places: dict[tuple[int, str], list[int]] = {}
    for row, key in enumerate(keys):
        places.setdefault(key, []).append(row)
    lines = []
    for (seed, variant), rows in places.items():
        learned = variant == "none"
        label = f"policy seed {seed}" if learned else variant.replace("_", " ")
        lines.append(Line(label, learned, columns["time"][rows], columns["equity"][rows]))
    return sorted(lines, key=lambda line: (not line.learned, line.label))


def fold_statuses(lake: Lake, study_id: str) -> list[dict[str, Any]]:
    """Return instrument, fold_key, status, reason, n_bars and fold_id of every current fold."""
    names = ("instrument", "fold_key", "status", "reason", "n_bars", "fold_id")
    with connect(lake) as connection:
        rows = connection.execute(
            f"SELECT {', '.join(names)} FROM fold WHERE study_id = ? AND NOT superseded "
            "ORDER BY instrument, fold_key",
            [study_id],
        ).fetchall()
    return [dict(zip(names, row, strict=True)) for row in rows]
