"""What became of the direction forecast in a study: its quality, and the verdict over all runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backtest.agent.aux_verdict import win_interval
from backtest.evaluation.intervals import Interval

if TYPE_CHECKING:
    import duckdb

MEANS = ("w_norm", "tv_direction", "advantage_var_magnitude")
QUALITY = ("aux_auc", "aux_shuffled_auc", "aux_sd")


@dataclass(frozen=True)
class AuxSummary:
    """Final rows of aux_verdict and rows of forecast_quality over folds and seeds.

    Attributes:
        runs: number of folds times seeds.
        win_rate: of all their trades in the test windows together; trades do not overlap within a
            run, runs of one fold share its bars.
        means: of `MEANS` over the runs that have them; None where none has.
        quality: of `QUALITY`, likewise.
        controls: runs whose shuffled control failed, as it must.
        conclusions: how often each was drawn.
    """

    runs: int
    win_rate: Interval
    means: Mapping[str, float | None]
    quality: Mapping[str, float | None]
    controls: int
    conclusions: Mapping[str, int]

    @property
    def text(self) -> str:
        """The conclusions in words; without alpha there is nothing to conclude."""
        counted = (f"{words} ({n} of {self.runs})" for words, n in self.conclusions.items())
        return ", ".join(counted) or "no alpha"

    def as_json(self) -> dict[str, Any]:
        """Return every figure."""
        return vars(self) | {"win_rate": vars(self.win_rate)}


def aux_summary(
    connection: duckdb.DuckDBPyConnection,
    study: str,
    instrument: str,
    fold_keys: Sequence[str],
    confidence: float,
) -> AuxSummary | None:
    """Return the summary of a study over these folds; None when it has no forecast.

    Args:
        connection: to the published store.
        study: study_id.
        instrument: its name.
        fold_keys: complete folds.
        confidence: of the win rate's interval.
    """
    own = (
        "FROM {table} JOIN fold f USING (fold_id) WHERE f.study_id = ? AND f.instrument = ? "
        "AND NOT f.superseded AND list_contains(?, f.fold_key)"
    )
    given = [study, instrument, list(fold_keys)]
    rows = connection.execute(
        f"SELECT n_trades, win_rate, conclusion, {', '.join(MEANS)} "
        f"{own.format(table='aux_verdict')} AND epoch = -1 ORDER BY fold_key, seed",
        given,
    ).fetchall()
    if not rows:
        return None
    quality = connection.execute(
        f"SELECT name, avg(value), count(*) FILTER (value = 1) "
        f"{own.format(table='forecast_quality')} GROUP BY name",
        given,
    ).fetchall()
    mean = {name: value for name, value, _ in quality}
    trades = sum(n for n, *_ in rows)
    wins = round(sum(n * (rate or 0.0) for n, rate, *_ in rows))
    return AuxSummary(
        runs=len(rows),
        win_rate=win_interval(wins, trades, confidence),
        means={name: _mean([row[3 + i] for row in rows]) for i, name in enumerate(MEANS)},
        quality={name: mean.get(name) for name in QUALITY},
        controls=sum(ones for name, _, ones in quality if name == "aux_control_fails"),
        conclusions=dict(Counter(words for _, _, words, *_ in rows if words is not None)),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
