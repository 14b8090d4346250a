"""Studies of the same folds and seeds, side by side: what does a changed setting do?

Figures come from the published store. All arms share their random numbers, so runs are paired by
fold and seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from backtest import rng
from backtest.aux_summary import AuxSummary, aux_summary
from backtest.errors import StoreError
from backtest.evaluation.intervals import (
    Interval,
    mean_difference,
    probability_of_improvement,
    stratified_interval,
)
from backtest.evaluation.ratios import Floats
from backtest.figures import Figure, counted, plain
from backtest.lake import Lake
from backtest.queries import connect

if TYPE_CHECKING:
    import duckdb

VARIANT = "chosen"
METRICS = ("sharpe", "net_return", "exposure", "n_trades")


@dataclass(frozen=True, eq=False)
class Arm:
    """One setting; matrices are float64[seeds, folds], NaN where undefined.

    Attributes:
        label: the setting, such as reward.formula=composite.
        study_id: its study.
        sharpe: annualised, of every run in its test window; NaN: it never traded.
        net_return: fraction of the initial capital.
        exposure: fraction of the bars with a position.
        n_trades: closed trades.
        position: mean absolute position, units.
        mean_sharpe: interquartile mean of `scores` with its interval over seeds.
        aux: what became of the direction forecast; None without one.
    """

    label: str
    study_id: str
    sharpe: Floats
    net_return: Floats
    exposure: Floats
    n_trades: Floats
    position: Floats
    mean_sharpe: Interval
    aux: AuxSummary | None = None

    @property
    def scores(self) -> Floats:
        """Sharpe with 0 for a run that earned nothing at no risk."""
        return scored(self.sharpe)


@dataclass(frozen=True)
class Comparison:
    """Arms over the same runs of one instrument.

    Attributes:
        instrument: its name.
        fold_keys: of the columns of every matrix.
        seeds: of the rows.
        arms: two or more; the others are measured against the first.
        improvements: of each other arm, P(its Sharpe > that of the first) over folds and pairs of
            seeds.
        differences: of each other arm, mean over folds of its Sharpe minus that of the first by
            seed, with its t interval.
    """

    instrument: str
    fold_keys: tuple[str, ...]
    seeds: tuple[int, ...]
    arms: tuple[Arm, ...]
    improvements: tuple[Interval, ...]
    differences: tuple[Interval, ...]

    @property
    def summary(self) -> str:
        """One line for each other arm: which is better, and whether that is more than chance."""
        return "\n".join(map(self._line, self.arms[1:], self.improvements))

    def _line(self, arm: Arm, chance: Interval) -> str:
        a, b = self.arms[0].label, arm.label
        value = plain(Figure(chance.value, chance.low, chance.high), bounds=True) or "undefined"
        folds, seeds = counted(len(self.fold_keys), "fold"), counted(len(self.seeds), "seed")
        size = f"over {folds} x {seeds}"
        if chance.low is None or chance.high is None:
            return f"ab {self.instrument}: P({b} > {a}) = {value} {size}: no interval"
        words = "cannot be told apart"
        if chance.low > 0.5:
            words = f"{b} is better"
        elif chance.high < 0.5:
            words = f"{a} is better"
        return f"ab {self.instrument}: {words}: P({b} > {a}) = {value} {size}"

    def as_json(self) -> dict[str, Any]:
        """Return every figure and every run; two arms have their contrast at the top as well."""
        arms: list[dict[str, Any]] = [
            {
                "label": arm.label,
                "study_id": arm.study_id,
                **{n: getattr(arm, n).tolist() for n in (*METRICS, "position")},
                "mean_sharpe": vars(arm.mean_sharpe),
                "aux": None if arm.aux is None else arm.aux.as_json(),
            }
            for arm in self.arms
        ]
        contrasts = [
            {"probability_of_improvement": vars(chance), "sharpe_difference": vars(difference)}
            for chance, difference in zip(self.improvements, self.differences, strict=True)
        ]
        for arm, contrast in zip(arms[1:], contrasts, strict=True):
            arm |= contrast
        return {
            "instrument": self.instrument,
            "fold_keys": list(self.fold_keys),
            "seeds": list(self.seeds),
            "arms": arms,
            **(contrasts[0] if len(contrasts) == 1 else {}),
        }


def compare(
    lake: Lake,
    studies: Sequence[str],
    labels: Sequence[str],
    instrument: str,
    *,
    resamples: int,
    confidence: float,
) -> Comparison:
    """Read all studies and compare the runs that they share.

    Args:
        lake: holds them, published.
        studies: study_id of each arm.
        labels: their settings.
        instrument: its name.
        resamples: bootstrap samples.
        confidence: of the intervals.

    Raises:
        StoreError: no store, or no fold and seed that all have.
    """
    with connect(lake) as connection:
        runs = [_runs(connection, study, instrument) for study in studies]
        shared = sorted(set.intersection(*map(set, runs)))
        keys = sorted({key for key, _ in shared})
        seeds = sorted({seed for _, seed in shared})
        complete = [key for key in keys if all((key, seed) in shared for seed in seeds)]
        if not complete:
            raise StoreError(
                f"{lake.store}: studies {' and '.join(studies)} share no complete fold of "
                f"{instrument}; run all of them over the same folds and seeds"
            )
        forecasts = [
            aux_summary(connection, study, instrument, complete, confidence) for study in studies
        ]
    stream = rng.key(0, instrument, "comparison")
    arms = []
    for study, name, found, aux in zip(studies, labels, runs, forecasts, strict=True):
        matrices = {
            metric: np.array(
                [[found[key, seed].get(metric, np.nan) for key in complete] for seed in seeds]
            )
            for metric in (*METRICS, "position")
        }
        over = stratified_interval(
            scored(matrices["sharpe"]), stream, resamples=resamples, confidence=confidence
        )
        arms.append(Arm(label=name, study_id=study, mean_sharpe=over, aux=aux, **matrices))
    first, *others = arms
    return Comparison(
        instrument=instrument,
        fold_keys=tuple(complete),
        seeds=tuple(seeds),
        arms=tuple(arms),
        improvements=tuple(
            probability_of_improvement(
                arm.scores, first.scores, stream, resamples=resamples, confidence=confidence
            )
            for arm in others
        ),
        differences=tuple(
            mean_difference(
                arm.scores.mean(axis=1), first.scores.mean(axis=1), confidence=confidence
            )
            for arm in others
        ),
    )


def scored(sharpe: Floats) -> Floats:
    """Return the Sharpe with 0 where it is undefined: nothing earned at no risk."""
    return np.where(np.isnan(sharpe), 0.0, sharpe)


def _runs(
    connection: duckdb.DuckDBPyConnection, study: str, instrument: str
) -> dict[tuple[str, int], dict[str, float]]:
    """Return the metrics of every run by (fold_key, seed)."""
    found: dict[tuple[str, int], dict[str, float]] = {}
    rows = connection.execute(
        "SELECT f.fold_key, m.seed, m.name, m.value FROM metric m "
        "JOIN fold f ON m.scope = 'fold' AND f.fold_id = m.scope_id "
        "WHERE f.study_id = ? AND f.instrument = ? AND NOT f.superseded AND f.status = 'complete' "
        f"AND m.policy_kind = 'learned' AND m.variant = '{VARIANT}' AND m.seed >= 0",
        [study, instrument],
    ).fetchall()
    rows += connection.execute(
        "SELECT f.fold_key, e.seed, 'position', avg(abs(e.position)) FROM equity e "
        "JOIN fold f USING (fold_id) LEFT JOIN skill_ablation a ON a.fold_id = e.fold_id "
        "AND a.seed = e.seed AND a.chosen "
        "WHERE f.study_id = ? AND f.instrument = ? AND NOT f.superseded AND f.status = 'complete' "
        "AND e.policy_kind = 'learned' AND e.variant = coalesce(a.variant, 'none') "
        "GROUP BY f.fold_key, e.seed",
        [study, instrument],
    ).fetchall()
    for key, seed, name, value in rows:
        if value is not None:
            found.setdefault((key, seed), {})[name] = value
    return found
