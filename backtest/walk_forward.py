"""All folds of a study together: stitched records, figures over seeds, the plan, publication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from backtest import rng
from backtest.data.issues import read_issues
from backtest.data.session import sessions_per_year
from backtest.evaluation.fold_rows import fold_row
from backtest.evaluation.intervals import Interval, probability_of_improvement, sharpe_interval
from backtest.evaluation.metrics import METRICS, daily_returns
from backtest.evaluation.rows import Row, as_chosen, metric_rows, over_seeds
from backtest.evaluation.stitching import stitched_metrics
from backtest.experiment import Experiment
from backtest.lake import read_table
from backtest.manifest import FoldHeader, Manifest, PartHeader
from backtest.publication import Published, publish
from backtest.splits import Fold
from backtest.store import fold_result, write_part

IMPROVEMENT = "p_improvement_over_"  # + baseline: P(Sharpe of the policy > that of the baseline)
Key = tuple[str, str, int]  # policy_kind, variant, seed


@dataclass(frozen=True)
class Record:
    """One policy or baseline over all complete folds of one instrument."""

    metrics: Mapping[str, float | None]
    sharpe: Interval
    sessions: int


def publish_study(experiment: Experiment, run_id: str) -> Published:
    """Write the study's figures from the fold results that exist, and publish the lake.

    Folds without a result are recorded as missing, those without bars or history as skipped.
    """
    by_instrument: dict[str, dict[Key, Record]] = {}
    for name in experiment.config.study.instruments:
        results, plan = _fold_results(experiment, name)
        rows = [] if not results else _records(experiment, name, results)
        found = dict(rows)
        by_instrument[name] = found
        metrics = _metric_table(experiment, [found], name, _improvements(experiment, name, results))
        header = PartHeader("walk_forward", run_id, experiment.study_id, name)
        write_part(experiment.lake, header, {"metric": metrics, "fold": plan})
        _write_issues(experiment, name, run_id)
    study = [found for found in by_instrument.values() if found]
    metrics = _metric_table(experiment, study, experiment.study_id, [])
    header = PartHeader("walk_forward", run_id, experiment.study_id)
    write_part(experiment.lake, header, {"metric": metrics})
    return publish(experiment.lake)


def _fold_results(
    experiment: Experiment, name: str
) -> tuple[list[tuple[Fold, Manifest]], list[Row]]:
    """Return the results of complete folds, and the plan rows of folds that have none."""
    bars = experiment.bars(name)
    results, plan = [], []
    for fold in experiment.folds(name):
        manifest = None
        fold_id = experiment.fold_id(name, fold)
        if fold.status != "skipped":
            header = FoldHeader(experiment.study_id, name, fold.key, fold_id, "")
            manifest = fold_result(experiment.lake, header)
        if manifest is None:
            row = {"fold_id": fold_id, **fold_row(fold, bars, None)}
            if fold.status != "skipped":
                row |= {"status": "missing", "reason": "no result: materialise fold_result"}
            plan.append(row)
        elif fold.status == "complete":
            results.append((fold, manifest))
    return results, plan


def _records(
    experiment: Experiment, name: str, results: Sequence[tuple[Fold, Manifest]]
) -> list[tuple[Key, Record]]:
    """Stitch every seed and baseline that all folds have."""
    config = experiment.config
    year = sessions_per_year(experiment.instrument(name).calendar)
    session = experiment.bars(name).session
    capital = config.market.initial_capital
    equities = [_by_key(read_table(m.path("equity")), "bar") for _, m in results]
    ledgers = [_by_key(read_table(m.path("trade")), "trade") for _, m in results]
    empty = {"bars": np.zeros(0), "pnl": np.zeros(0), "reason": np.zeros(0, "U6")}
    records = []
    for key in equities[0]:
        if not all(key in fold for fold in equities):
            continue
        rows = [{**fold[key], "session": session[fold[key]["bar"]]} for fold in equities]
        trades = [fold.get(key, empty) for fold in ledgers]
        returns, _ = daily_returns(
            np.concatenate([r["session"] for r in rows]),
            np.concatenate([r["pnl"] for r in rows]),
            capital,
        )
        interval = sharpe_interval(
            returns,
            year,
            rng.key(0, name, "all folds"),
            resamples=config.evaluation.bootstrap,
            confidence=config.evaluation.confidence,
        )
        metrics = stitched_metrics(rows, trades, capital, year)
        if metrics["sharpe"] is None:
            interval = Interval(None, None, None, len(returns))
        records.append((key, Record(metrics, interval, len(returns))))
    return records


def _by_key(table: Any, order: str) -> dict[Key, dict[str, Any]]:
    """Return the columns of each policy_kind, variant and seed of an equity or trade table."""
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
    labels = list(
        zip(columns["policy_kind"], columns["variant"], columns["seed"].tolist(), strict=True)
    )
    places: dict[Key, list[int]] = {}
    for row, label in enumerate(labels):
        places.setdefault(label, []).append(row)
    found = {}
    for key, rows in places.items():
        at = np.array(rows)
        at = at[np.argsort(columns[order][at], kind="stable")]
        found[key] = {name: column[at] for name, column in columns.items()}
    return found


def _metric_table(
    experiment: Experiment,
    instruments: Sequence[Mapping[Key, Record]],
    scope: str,
    improvements: Sequence[Row],
) -> list[Row]:
    """Return metric rows: one instrument's by seed, and over seeds (and instruments)."""
    chance = experiment.config.evaluation
    rows: list[Row] = []
    if len(instruments) == 1:
        for (kind, variant, seed), record in instruments[0].items():
            key = {"seed": seed, "variant": variant, "policy_kind": kind}
            rows += metric_rows(record.metrics, key, record.sessions, record.sharpe)
    groups: dict[tuple[str, str], list[list[Mapping[str, float | None]]]] = {}
    for place, records in enumerate(instruments):
        for (kind, variant, _), record in records.items():
            strata = groups.setdefault((kind, variant), [[] for _ in instruments])
            strata[place].append(record.metrics)
    for (kind, variant), strata in groups.items():
        runs = max(map(len, strata))
        if runs == 1 and len(instruments) == 1:
            continue  # the one record is the figure
        absent: Mapping[str, float | None] = dict.fromkeys(METRICS)
        rows += over_seeds(
            [[*s, *[absent] * (runs - len(s))] for s in strata],
            {"variant": variant, "policy_kind": kind},
            rng.key(0, scope, "all folds"),
            resamples=chance.bootstrap,
            confidence=chance.confidence,
        )
    rows += improvements
    return [*rows, *as_chosen(rows, "none")]


def _improvements(
    experiment: Experiment, name: str, results: Sequence[tuple[Fold, Manifest]]
) -> list[Row]:
    """Return P(policy > baseline) by fold Sharpe, for each baseline, as metric rows."""
    if not results:
        return []
    chance = experiment.config.evaluation
    scores: dict[tuple[str, str], list[list[float]]] = {}
    for place, (_, manifest) in enumerate(results):
        for row in read_table(manifest.path("metric")).to_pylist():
            if row["name"] == "sharpe" and row["seed"] >= -1 and row["variant"] != "chosen":
                # a record without a Sharpe earned nothing at no risk
                value = 0.0 if row["value"] is None else row["value"]
                folds = scores.setdefault(
                    (row["policy_kind"], row["variant"]), [[] for _ in results]
                )
                folds[place].append(value)
    learned = np.array(scores[("learned", "none")]).T
    rows = []
    for (kind, variant), folds in scores.items():
        if kind == "learned":
            continue
        found = probability_of_improvement(
            learned,
            np.array(folds).T,
            rng.key(0, name, "improvement"),
            resamples=chance.bootstrap,
            confidence=chance.confidence,
        )
        rows.append(
            {
                "policy_kind": "learned",
                "variant": "none",
                "seed": -2,
                "name": IMPROVEMENT + variant,
                "value": found.value,
                "low": found.low,
                "high": found.high,
                "n": found.n,
            }
        )
    return rows


def _write_issues(experiment: Experiment, name: str, run_id: str) -> None:
    """Copy what ingestion found into the store."""
    path = experiment.lake.bars(name).with_suffix(".issues.parquet")
    issues = read_issues(path) if path.is_file() else ()
    rows = [vars(issue) for issue in issues]
    write_part(experiment.lake, PartHeader("data_issue", run_id, "", name), {"data_issue": rows})
