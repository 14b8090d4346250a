"""From accounts and metrics to the rows of the store's tables (`schema.sql`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from backtest import rng
from backtest.config import Evaluation
from backtest.evaluation.account import Account
from backtest.evaluation.intervals import (
    Interval,
    mean_interval,
    sharpe_interval,
    stratified_interval,
)
from backtest.evaluation.metrics import OPEN
from backtest.features.table import FeatureTable
from backtest.market.layout import COMPONENTS, Array, End
from backtest.market.reward import weighted_terms

ALL_SEEDS = -2  # value = interquartile mean over seeds
DETERMINISTIC_SEED = -1
CHOSEN = "chosen"  # the variant that validation picked, fold by fold and seed by seed
Row = dict[str, Any]
Columns = dict[str, Array]


def equity_columns(found: Account, key: Mapping[str, Any]) -> Columns:
    """Return the columns of table equity for one episode.

    Args:
        found: the account.
        key: seed, variant and policy_kind.
    """
    names = ("bar", "time", "position", "close", "gross", "cost", "pnl", "equity")
    columns = {name: getattr(found, name) for name in (*names, "fill_price", "drawdown", "reward")}
    return labelled(columns, key, len(found.bar))


def trade_columns(found: Account, table: FeatureTable, key: Mapping[str, Any]) -> Columns:
    """Return the columns of table trade for one episode.

    Args:
        found: the account.
        table: has the times of all bars on which a trade begins or ends.
        key: seed, variant and policy_kind.
    """
    columns: Columns = {name: found.trades[name] for name in found.trades.dtype.names or ()}
    for end in ("entry", "exit"):
        columns[f"{end}_time"] = table.time[found.trades[f"{end}_bar"] - table.first_bar]
    columns["trade"] = np.arange(len(found.trades))
    return labelled(columns, key, len(found.trades))


def labelled(columns: Columns, key: Mapping[str, Any], n: int) -> Columns:
    """Return columns of n rows with those of their key before them."""
    return {**{name: np.full(n, value) for name, value in key.items()}, **columns}


def stacked(parts: Sequence[Columns]) -> Columns:
    """Return the rows of several parts below one another."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def metric_columns(found: Account, session: Array) -> dict[str, Array]:
    """Return the columns that `backtest.evaluation.metrics` reads."""
    return {
        "bar": found.bar,
        "session": session,
        "position": found.position,
        "gross": found.gross,
        "cost": found.cost,
        "pnl": found.pnl,
        "equity": found.equity,
    }


def record_intervals(
    returns: Array,
    trades: Array | Mapping[str, Array],
    sessions_per_year: float,
    key: rng.Words,
    chance: Evaluation,
) -> dict[str, Interval]:
    """Return the intervals of one record over time, by metric name: sharpe and expectancy.

    Args:
        returns: float64[n], daily net PnL / initial capital.
        trades: columns pnl (currency) and reason.
        sessions_per_year: of the instrument's calendar.
        key: uint32[2], for the bootstrap.
        chance: resamples and confidence.
    """
    pnl = np.asarray(trades["pnl"], np.float64)[np.asarray(trades["reason"], np.str_) != OPEN]
    return {
        "sharpe": sharpe_interval(
            returns,
            sessions_per_year,
            key,
            resamples=chance.bootstrap,
            confidence=chance.confidence,
        ),
        "expectancy": mean_interval(pnl, confidence=chance.confidence),
    }


def metric_rows(
    values: Mapping[str, float | None],
    key: Mapping[str, Any],
    n: int,
    intervals: Mapping[str, Interval],
) -> list[Row]:
    """Return the rows of table metric for one record.

    Args:
        values: by metric name.
        key: seed, variant and policy_kind.
        n: sessions behind the values that have no interval of their own.
        intervals: by metric name; their n is that of the metric.
    """
    rows = []
    for name, value in values.items():
        found = intervals.get(name, Interval(value, None, None, n))
        bounds = {"low": found.low, "high": found.high, "n": found.n}
        rows.append({**key, "name": name, "value": value, **bounds})
    return rows


def over_seeds(
    values: Sequence[Sequence[Mapping[str, float | None]]],
    key: Mapping[str, Any],
    bootstrap_key: rng.Words,
    chance: Evaluation,
) -> list[Row]:
    """Return the rows of seed -2: interquartile means with stratified bootstrap intervals.

    Args:
        values: metrics by stratum (fold or instrument) and run; strata may differ in their runs.
        key: variant and policy_kind.
        bootstrap_key: uint32[2].
        chance: resamples and confidence.
    """
    rows = []
    for name in next(run for runs in values for run in runs):
        scores = side_by_side([[run[name] for run in runs] for runs in values])
        found = stratified_interval(
            scores, bootstrap_key, resamples=chance.bootstrap, confidence=chance.confidence
        )
        figures = {"value": found.value, "low": found.low, "high": found.high, "n": found.n}
        rows.append({**key, "seed": ALL_SEEDS, "name": name, **figures})
    return rows


def side_by_side(strata: Sequence[Sequence[float | None]]) -> Array:
    """Return scores float64[runs, strata]; NaN where undefined or where a stratum has fewer."""
    scores = np.full((max(map(len, strata)), len(strata)), np.nan)
    for column, runs in enumerate(strata):
        scores[: len(runs), column] = [np.nan if score is None else score for score in runs]
    return scores


def chosen_rows(rows: Sequence[Row], picks: Mapping[int, str]) -> list[Row]:
    """Return the rows of each seed's pick again under the name `chosen`.

    Args:
        rows: of table metric; those over seeds and of baselines are left out.
        picks: variant that validation chose, by seed.
    """
    return [
        {**row, "variant": CHOSEN}
        for row in rows
        if row["policy_kind"] == "learned" and picks.get(row["seed"]) == row["variant"]
    ]


def component_rows(params: Array, trace: Array, key: Mapping[str, Any]) -> list[Row]:
    """Return the rows of table reward_component for one episode.

    Args:
        params: one `MarketParams` record.
        trace: `StepResult` records [n].
        key: seed and variant.
    """
    live = trace[trace["end"] != End.DEAD]
    terms = weighted_terms(params, {name: live[name] for name in COMPONENTS})
    size = {name: float(np.abs(term, dtype=np.float64).mean()) for name, term in terms.items()}
    total = sum(size.values())
    rows = []
    for name in (*COMPONENTS, "reward"):
        column = live[name].astype(np.float64)
        rows.append(
            {
                **key,
                "name": name,
                "mean": float(column.mean()),
                "std": float(column.std(ddof=1)) if len(column) > 1 else None,
                "share": size[name] / total if name in size and total > 0 else None,
            }
        )
    return rows
