"""From accounts and metrics to the rows of the store's tables (`schema.sql`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from backtest import rng
from backtest.evaluation.account import Account
from backtest.evaluation.intervals import Interval, stratified_interval
from backtest.evaluation.metrics import METRICS
from backtest.market.layout import COMPONENTS, Array, End
from backtest.market.reward import weighted_terms

ALL_SEEDS = -2  # value = interquartile mean over seeds
DETERMINISTIC_SEED = -1
Row = dict[str, Any]


def equity_rows(found: Account, key: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of table equity for one episode.

    Args:
        found: the account.
        key: seed, variant and policy_kind.
    """
    n = len(found.bar)
    columns: dict[str, Any] = {name: np.full(n, value) for name, value in key.items()}
    for name in ("bar", "time", "position", "close", "gross", "cost", "pnl", "equity"):
        columns[name] = getattr(found, name)
    for name in ("fill_price", "drawdown", "reward"):
        columns[name] = getattr(found, name)
    return columns


def trade_rows(found: Account, time: Mapping[int, int], key: Mapping[str, Any]) -> list[Row]:
    """Return the rows of table trade for one episode.

    Args:
        found: the account.
        time: bar close in ns UTC, by bar.
        key: seed, variant and policy_kind.
    """
    rows = []
    for number, trade in enumerate(found.trades):
        row = {name: trade[name].item() for name in found.trades.dtype.names or ()}
        row |= {"entry_time": time[row["entry_bar"]], "exit_time": time[row["exit_bar"]]}
        rows.append({**key, "trade": number, **row})
    return rows


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


def metric_rows(
    values: Mapping[str, float | None],
    key: Mapping[str, Any],
    n: int,
    sharpe: Interval | None = None,
) -> list[Row]:
    """Return the rows of table metric for one record.

    Args:
        values: by metric name.
        key: seed, variant and policy_kind.
        n: sessions behind the values.
        sharpe: the Sharpe's interval, where it was computed.
    """
    rows = []
    for name in METRICS:
        low = high = None
        if name == "sharpe" and sharpe is not None:
            low, high = sharpe.low, sharpe.high
        rows.append({**key, "name": name, "value": values[name], "low": low, "high": high, "n": n})
    return rows


def over_seeds(
    values: Sequence[Sequence[Mapping[str, float | None]]],
    key: Mapping[str, Any],
    bootstrap_key: rng.Words,
    *,
    resamples: int,
    confidence: float,
) -> list[Row]:
    """Return the rows of seed -2: interquartile means with stratified bootstrap intervals.

    Args:
        values: metrics by stratum (fold or instrument) and run.
        key: variant and policy_kind.
        bootstrap_key: uint32[2].
        resamples: bootstrap samples.
        confidence: of the interval.
    """
    rows = []
    for name in METRICS:
        scores = np.array(
            [[np.nan if run[name] is None else run[name] for run in runs] for runs in values],
            float,
        ).T
        found = stratified_interval(
            scores, bootstrap_key, resamples=resamples, confidence=confidence
        )
        figures = {"value": found.value, "low": found.low, "high": found.high, "n": found.n}
        rows.append({**key, "seed": ALL_SEEDS, "name": name, **figures})
    return rows


def as_chosen(rows: Sequence[Row], variant: str) -> list[Row]:
    """Return the rows of a variant again under the name `chosen`: what validation picked."""
    return [{**row, "variant": "chosen"} for row in rows if row["variant"] == variant]


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
