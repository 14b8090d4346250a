"""Small, complete fold results for tests of the store, worked out by hand."""

from datetime import UTC, datetime, timedelta

import numpy as np

from backtest.lake import Lake
from backtest.manifest import FoldHeader, Manifest
from backtest.store import write_fold_result

CAPITAL = 1000.0
START = datetime(2020, 1, 1, tzinfo=UTC)
BANKS = ("none", "task", "step", "both", "finetune")


def header(fold=0, study="a" * 16, instrument="SP500", fold_id=None, run="run-1"):
    fold_key = f"{2001 + fold}-01-01"
    name = fold_id or f"{study[:8]}{fold:08x}"
    return FoldHeader(study, instrument, fold_key, name, run)


def fold_row(fold=0, bars=2, status="complete", **changes):
    """One row of table fold without the columns that the header knows."""
    start = 30 + fold * bars
    row = {
        "index": fold,
        "train_start": start - 22,
        "train_stop": start - 12,
        "validation_start": start - 10,
        "validation_stop": start - 2,
        "test_start": start,
        "test_stop": start + bars,
        "n_bars": bars,
        "status": status,
        "reason": None,
        "features_hash": "f",
        "bars_hash": "b",
    }
    edges = [name for name in row if name.endswith(("_start", "_stop"))]
    row |= {f"{e}_time": START + timedelta(days=row[e] - e.endswith("_stop")) for e in edges}
    return row | changes


def equity_rows(pnl, fold=0, seed=0, variant="none"):
    """Columns of table equity from the PnL of each bar of the test window."""
    pnl = np.asarray(pnl, float)
    n = len(pnl)
    bar = 30 + fold * n + np.arange(n)
    equity = CAPITAL + np.cumsum(pnl)
    return {
        "seed": np.full(n, seed, np.int32),
        "variant": [variant] * n,
        "bar": bar,
        "policy_kind": ["learned" if variant in BANKS else "baseline"] * n,
        "time": int(START.timestamp()) * 10**9 + bar * 86_400 * 10**9,  # ns, as in Bars.time
        "position": np.ones(n),
        "close": np.full(n, 100.0),
        "fill_price": np.full(n, np.nan),
        "gross": pnl,
        "cost": np.zeros(n),
        "pnl": pnl,
        "equity": equity,
        "drawdown": np.zeros(n),
        "reward": np.zeros(n, np.float32),
    }


def joined(*parts):
    """Several column mappings below one another."""
    return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}


def write_fold(lake: Lake, pnl, fold=0, seed=0, status="complete", **names) -> Manifest:
    """Write a fold result with a fold row and the equity of one seed."""
    tables = {"fold": [fold_row(fold, len(pnl), status)], "equity": equity_rows(pnl, fold, seed)}
    return write_fold_result(lake, header(fold, **names), tables)


def metric_row(name="sharpe", value=1.0, seed=-2, variant="none", kind="learned", **bounds):
    row = {"policy_kind": kind, "variant": variant, "seed": seed, "name": name, "value": value}
    return row | {"low": None, "high": None, "n": 1} | bounds
