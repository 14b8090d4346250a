"""All folds of a study together: stitched records, figures over seeds, the plan, publication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import TypeVar

import numpy as np

from backtest import rng
from backtest.data.issues import read_issues
from backtest.data.session import sessions_per_year
from backtest.evaluation.ablation import NONE, picks
from backtest.evaluation.fold_rows import fold_row
from backtest.evaluation.intervals import Interval, probability_of_improvement
from backtest.evaluation.metrics import daily_returns
from backtest.evaluation.rows import (
    ALL_SEEDS,
    CHOSEN,
    Columns,
    Row,
    metric_rows,
    over_seeds,
    record_intervals,
    side_by_side,
    stacked,
)
from backtest.evaluation.stitching import stitched_metrics
from backtest.experiment import Experiment
from backtest.lake import read_table
from backtest.manifest import FoldHeader, Manifest, PartHeader
from backtest.publication import Published, publish
from backtest.store import fold_result, write_part

IMPROVEMENT = "p_improvement_over_"  # + baseline: P(Sharpe of the policy > that of the baseline)
Key = tuple[str, str, int]  # policy_kind, variant, seed
T = TypeVar("T")


@dataclass(frozen=True)
class Record:
    """One policy or baseline over all complete folds of one instrument."""

    metrics: Mapping[str, float | None]
    intervals: Mapping[str, Interval]  # over time, by metric name
    sessions: int


def publish_study(experiment: Experiment, run_id: str) -> Published:
    """Write the study's figures from the fold results that exist, and publish the lake.

    Folds without a result are recorded as missing, those without bars or history as skipped.
    """
    by_instrument: list[dict[Key, Record]] = []
    for name in experiment.config.study.instruments:
        results, plan = _fold_results(experiment, name)
        records = _records(experiment, name, results) if results else {}
        rows = _record_rows(records) + _over_seeds(experiment, [records], name)
        rows += _improvements(experiment, name, results)
        header = PartHeader("walk_forward", run_id, experiment.study_id, name)
        write_part(experiment.lake, header, {"metric": rows, "fold": plan})
        _write_issues(experiment, name, run_id)
        if records:
            by_instrument.append(records)
    rows = _over_seeds(experiment, by_instrument, experiment.study_id)
    if len(by_instrument) == 1:
        rows += _record_rows(by_instrument[0])
    header = PartHeader("walk_forward", run_id, experiment.study_id)
    write_part(experiment.lake, header, {"metric": rows})
    return publish(experiment.lake)


def _fold_results(experiment: Experiment, name: str) -> tuple[list[Manifest], list[Row]]:
    """Return the complete folds' results in the order of time, and plan rows of absent ones."""
    bars = experiment.bars(name)
    results, plan = [], []
    for fold in experiment.folds(name):
        fold_id = experiment.fold_id(name, fold)
        header = FoldHeader(experiment.study_id, name, fold.key, fold_id, "")
        skipped = fold.status == "skipped"
        manifest = None if skipped else fold_result(experiment.lake, header)
        if manifest is None:
            row = {"fold_id": fold_id, **fold_row(fold, bars, None)}
            if not skipped:
                row |= {"status": "missing", "reason": "no result: materialise fold_result"}
            plan.append(row)
        elif manifest.status == "complete":
            results.append(manifest)
    return results, plan


def _records(experiment: Experiment, name: str, results: Sequence[Manifest]) -> dict[Key, Record]:
    """Stitch every seed and baseline that all folds have; `chosen` follows each fold's pick."""
    config = experiment.config
    year = sessions_per_year(experiment.instrument(name).calendar)
    session = experiment.bars(name).session
    capital = config.market.initial_capital
    chosen = [fold_picks(m) for m in results]
    equities = [with_chosen(_by_key(m, "equity"), p) for m, p in zip(results, chosen, strict=True)]
    ledgers = [with_chosen(_by_key(m, "trade"), p) for m, p in zip(results, chosen, strict=True)]
    liquidation = [_metric(m, "liquidation_cost") for m in results]
    nothing = {"bars": np.zeros(0), "pnl": np.zeros(0), "reason": np.zeros(0, "U4")}
    records: dict[Key, Record] = {}
    for key in equities[0]:
        if not all(key in fold for fold in equities):
            continue
        kind, variant, seed = key
        picked = {fold.get(seed, NONE) for fold in chosen} if variant == CHOSEN else set()
        if len(picked) == 1:  # the same in every fold: its record is there already
            records[key] = records[kind, picked.pop(), seed]
            continue
        rows = [{**fold[key], "session": session[fold[key]["bar"]]} for fold in equities]
        trades = [
            {column: fold.get(key, nothing)[column] for column in nothing} for fold in ledgers
        ]
        metrics = stitched_metrics(rows, trades, capital, year)
        metrics["liquidation_cost"] = sum(fold[key] or 0.0 for fold in liquidation)
        every = stacked([{column: r[column] for column in ("session", "pnl")} for r in rows])
        returns, _ = daily_returns(every["session"], every["pnl"], capital)
        intervals = record_intervals(
            returns, stacked(trades), year, rng.key(0, name, "all folds"), config.evaluation
        )
        if metrics["sharpe"] is None:  # after a ruin there is no track record
            intervals["sharpe"] = Interval(None, None, None, len(returns))
        records[key] = Record(metrics, intervals, len(returns))
    return records


def fold_picks(manifest: Manifest) -> dict[int, str]:
    """Return the variant that validation chose in a fold, by seed."""
    return picks(read_table(manifest.path("skill_ablation")).to_pylist())


def with_chosen(found: Mapping[Key, T], picked: Mapping[int, str]) -> dict[Key, T]:
    """Return values by key with those of each seed's pick again under the name `chosen`, last."""
    again = {
        ("learned", CHOSEN, seed): value
        for (kind, variant, seed), value in found.items()
        if kind == "learned" and variant == picked.get(seed, NONE)
    }
    return {**found, **again}


def _by_key(manifest: Manifest, name: str) -> dict[Key, Columns]:
    """Return the columns of each policy_kind, variant and seed of a fold's table.

    The rows of one key lie together, in order: files are sorted by the table's primary key.
    """
    table = read_table(manifest.path(name))
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
    labels = [columns[part] for part in ("policy_kind", "variant", "seed")]
    changes = np.any([part[1:] != part[:-1] for part in labels], axis=0)
    edges = [0, *(np.flatnonzero(changes) + 1).tolist(), table.num_rows]
    found: dict[Key, Columns] = {}
    for start, stop in pairwise(edges):
        if start < stop:
            kind, variant, seed = (part[start] for part in labels)
            rows = {column: values[start:stop] for column, values in columns.items()}
            found[kind, variant, int(seed)] = rows
    return found


def _metric(manifest: Manifest, name: str) -> dict[Key, float | None]:
    """Return one metric of a fold's single records, by their key."""
    rows = read_table(manifest.path("metric")).to_pylist()
    return {
        (row["policy_kind"], row["variant"], row["seed"]): row["value"]
        for row in rows
        if row["name"] == name and row["seed"] != ALL_SEEDS
    }


def _record_rows(records: Mapping[Key, Record]) -> list[Row]:
    """Return the metric rows of every single record."""
    rows: list[Row] = []
    for (kind, variant, seed), record in records.items():
        key = {"seed": seed, "variant": variant, "policy_kind": kind}
        rows += metric_rows(record.metrics, key, record.sessions, record.intervals)
    return rows


def _over_seeds(
    experiment: Experiment, instruments: Sequence[Mapping[Key, Record]], scope: str
) -> list[Row]:
    """Return the metric rows over seeds and instruments; a single record is its own figure."""
    groups: dict[tuple[str, str], list[list[Mapping[str, float | None]]]] = {}
    for place, records in enumerate(instruments):
        for (kind, variant, _), record in records.items():
            strata = groups.setdefault((kind, variant), [[] for _ in instruments])
            strata[place].append(record.metrics)
    rows: list[Row] = []
    for (kind, variant), strata in groups.items():
        if sum(map(len, strata)) > 1:
            key = {"variant": variant, "policy_kind": kind}
            stream = rng.key(0, scope, "all folds")
            rows += over_seeds(strata, key, stream, experiment.config.evaluation)
    return rows


def _improvements(experiment: Experiment, name: str, results: Sequence[Manifest]) -> list[Row]:
    """Return P(policy > baseline) by fold Sharpe, for each variant and baseline, as metric rows."""
    chance = experiment.config.evaluation
    scores: dict[tuple[str, str], list[list[float | None]]] = {}
    for place, manifest in enumerate(results):
        for (kind, variant, _), sharpe in _metric(manifest, "sharpe").items():
            folds = scores.setdefault((kind, variant), [[] for _ in results])
            # a record without a Sharpe earned nothing at no risk
            folds[place].append(0.0 if sharpe is None else sharpe)
    sides: dict[str, list[str]] = {"learned": [], "baseline": []}
    for kind, variant in scores:
        sides[kind].append(variant)
    rows = []
    for variant, baseline in product(sides["learned"], sides["baseline"]):
        found = probability_of_improvement(
            side_by_side(scores["learned", variant]),
            side_by_side(scores["baseline", baseline]),
            rng.key(0, name, "improvement"),
            resamples=chance.bootstrap,
            confidence=chance.confidence,
        )
        label = {"policy_kind": "learned", "variant": variant, "seed": ALL_SEEDS}
        rows.append({**label, "name": IMPROVEMENT + baseline, **vars(found)})
    return rows


def _write_issues(experiment: Experiment, name: str, run_id: str) -> None:
    """Copy what ingestion found into the store."""
    path = experiment.lake.issues(name)
    issues = read_issues(path) if path.is_file() else ()
    rows = [vars(issue) for issue in issues]
    write_part(experiment.lake, PartHeader("data_issue", run_id, "", name), {"data_issue": rows})
