"""The stitched out-of-sample record of a study, read from the published store for pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from backtest.evaluation.ablation import NONE, VARIANTS
from backtest.evaluation.rows import CHOSEN
from backtest.lake import Lake
from backtest.queries import connect


@dataclass(frozen=True, eq=False)
class Line:
    """Equity of one policy or baseline over all complete folds.

    Attributes:
        label: for people, such as "policy seed 0" or "buy and hold".
        learned: a policy as validation chose it, nothing that it is compared with.
        time: datetime64[us][n], bar closes, UTC.
        equity: float64[n], currency, compounded over folds.
    """

    label: str
    learned: bool
    time: npt.NDArray[np.datetime64]
    equity: npt.NDArray[np.float64]


def stitched(lake: Lake, study_id: str, instrument: str) -> list[Line]:
    """Return the lines of an instrument, policies by seed and then what they are compared with.

    A policy is what validation chose, fold by fold; where that was not always the variant without
    skills, this one has a line as well.

    Raises:
        StoreError: there is no store.
    """
    with connect(lake) as connection:
        columns = connection.execute(
            "SELECT seed, variant, time, equity FROM oos_equity WHERE study_id = ? "
            "AND instrument = ? ORDER BY seed, variant, bar",
            [study_id, instrument],
        ).fetchnumpy()
    keys = list(zip(columns["seed"].tolist(), columns["variant"].tolist(), strict=True))
    places: dict[tuple[int, str], list[int]] = {}
    for row, key in enumerate(keys):
        places.setdefault(key, []).append(row)
    lines = []
    for (seed, variant), rows in places.items():
        time, equity = columns["time"][rows], columns["equity"][rows]
        if variant == CHOSEN:
            lines.append(Line(policy_label(seed, True), True, time, equity))
        elif variant == NONE:
            if not np.array_equal(equity, columns["equity"][places[seed, CHOSEN]]):
                lines.append(Line(policy_label(seed, False), False, time, equity))
        elif variant not in VARIANTS:
            lines.append(Line(variant.replace("_", " "), False, time, equity))
    return sorted(lines, key=lambda line: (not line.learned, line.label))


def policy_label(seed: int, chosen: bool) -> str:
    """Return the name of a policy's line: as validation chose it, or without skills."""
    return f"policy seed {seed}{'' if chosen else ' without skills'}"


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
