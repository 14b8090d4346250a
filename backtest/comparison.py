"""Two studies of the same folds and seeds, side by side: what does one changed setting do?

Figures come from the published store. Both arms share their random numbers, so runs are paired by
fold and seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from backtest import rng
from backtest.errors import StoreError
from backtest.evaluation.intervals import (
    Interval,
    mean_difference,
    probability_of_improvement,
    stratified_interval,
)
from backtest.evaluation.ratios import Floats
from backtest.lake import Lake
from backtest.queries import connect
from backtest.summary import Figure, counted, plain

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
    """

    label: str
    study_id: str
    sharpe: Floats
    net_return: Floats
    exposure: Floats
    n_trades: Floats
    position: Floats
    mean_sharpe: Interval

    @property
    def scores(self) -> Floats:
        """Sharpe with 0 for a run that earned nothing at no risk."""
        return scored(self.sharpe)


@dataclass(frozen=True)
class Comparison:
    """Two arms over the same runs of one instrument.

    Attributes:
        instrument: its name.
        fold_keys: of the columns of every matrix.
        seeds: of the rows.
        first: arm A.
        second: arm B.
        improvement: P(Sharpe of B > Sharpe of A) over folds and pairs of seeds.
        difference: mean over folds of Sharpe B - Sharpe A by seed, with its t interval.
    """

    instrument: str
    fold_keys: tuple[str, ...]
    seeds: tuple[int, ...]
    first: Arm
    second: Arm
    improvement: Interval
    difference: Interval

    @property
    def summary(self) -> str:
        """One line: which is better, and whether that is more than chance."""
        chance, a, b = self.improvement, self.first.label, self.second.label
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
        """Return every figure and every run."""
        return {
            "instrument": self.instrument,
            "fold_keys": list(self.fold_keys),
            "seeds": list(self.seeds),
            "arms": [
                {
                    "label": arm.label,
                    "study_id": arm.study_id,
                    **{n: getattr(arm, n).tolist() for n in (*METRICS, "position")},
                    "mean_sharpe": vars(arm.mean_sharpe),
                }
                for arm in (self.first, self.second)
            ],
            "probability_of_improvement": vars(self.improvement),
            "sharpe_difference": vars(self.difference),
        }


def compare(
    lake: Lake,
    studies: tuple[str, str],
    labels: tuple[str, str],
    instrument: str,
    *,
    resamples: int,
    confidence: float,
) -> Comparison:
    """Read both studies and compare the runs that they share.

    Args:
        lake: holds both, published.
        studies: study_id of arm A and of arm B.
        labels: their settings.
        instrument: its name.
        resamples: bootstrap samples.
        confidence: of the intervals.

    Raises:
        StoreError: no store, or no fold and seed that both have.
    """
    with connect(lake) as connection:
        runs = [_runs(connection, study, instrument) for study in studies]
    shared = sorted(set(runs[0]) & set(runs[1]))
    keys = sorted({key for key, _ in shared})
    seeds = sorted({seed for _, seed in shared})
    complete = [key for key in keys if all((key, seed) in shared for seed in seeds)]
    if not complete:
        raise StoreError(
            f"{lake.store}: studies {studies[0]} and {studies[1]} share no complete fold of "
            f"{instrument}; run both over the same folds and seeds"
        )
    arms = []
    for study, name, found in zip(studies, labels, runs, strict=True):
        matrices = {
            metric: np.array(
                [[found[key, seed].get(metric, np.nan) for key in complete] for seed in seeds]
            )
            for metric in (*METRICS, "position")
        }
        over = stratified_interval(
            scored(matrices["sharpe"]),
            rng.key(0, instrument, "comparison"),
            resamples=resamples,
            confidence=confidence,
        )
        arms.append(Arm(label=name, study_id=study, mean_sharpe=over, **matrices))
    first, second = arms
    return Comparison(
        instrument=instrument,
        fold_keys=tuple(complete),
        seeds=tuple(seeds),
        first=first,
        second=second,
        improvement=probability_of_improvement(
            second.scores,
            first.scores,
            rng.key(0, instrument, "comparison"),
            resamples=resamples,
            confidence=confidence,
        ),
        difference=mean_difference(
            second.scores.mean(axis=1), first.scores.mean(axis=1), confidence=confidence
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
