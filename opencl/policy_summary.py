"""The summary of one trained seed: rows of policy, curve and trial, and its validation returns."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np

from backtest.agent.aux_verdict import without_figures
from backtest.agent.checkpoint import Policy
from backtest.agent.result import Trained
from backtest.config import Network
from backtest.errors import DataError
from backtest.market.layout import Array

Row = dict[str, Any]


def policy_row(policy: Policy, trained: Trained, path: str, weight_hash: str) -> Row:
    """Return the row of table policy.

    Args:
        policy: as it was saved.
        trained: what training returned.
        path: of the policy's file, below the lake.
        weight_hash: of its weights.
    """
    return {
        **own_key(policy),
        "variant": "none",
        "run_id": policy.labels["run_id"],
        "network": network_name(policy.network),
        "path": path,
        "weight_hash": weight_hash,
        "steps": trained.steps,
        "updates": trained.updates,
        "best_epoch": trained.best_epoch,
        "validation_sharpe": trained.best.validation.sharpe,
        "train_sharpe": trained.best.train.sharpe,
        "v_min": trained.v_min,
        "v_max": trained.v_max,
        "edge_mass": trained.edge_mass,
        "device": policy.labels["device"],
    }


def network_name(network: Network) -> str:
    """Return kind and sizes for people, such as "mlp 128-128 x 51"."""
    name = f"{network.kind} {'-'.join(map(str, network.hidden))} x {network.atoms}"
    if network.kind == "scenario":
        name += f", S {network.scenarios} H {network.horizon} L {network.latent}"
    return name


def curve_rows(policy: Policy, trained: Trained) -> list[Row]:
    """Return one row an epoch, without the figures of the aux verdict."""
    return [{**own_key(policy), **without_figures(row)} for row in trained.curves]


def trial_row(
    policy: Policy, trained: Trained, made_by: str, started: datetime, seconds: float
) -> Row:
    """Return the row of table trial: a training run counts as one trial.

    Args:
        policy: as it was saved.
        trained: what training returned.
        made_by: identity of fold, seed and device.
        started: UTC.
        seconds: it took.
    """
    return {
        "trial_id": made_by,
        "study_id": policy.config_hash,
        "fold_id": policy.labels["fold_id"],
        "kind": "train",
        "params": {},
        "seed": policy.seed,
        "phase": None,
        "objective": trained.best.validation.sharpe,
        "started": started.isoformat(),
        "seconds": seconds,
        "status": "complete",
    }


def trial_returns(trained: Trained, session: Array, capital: float) -> list[Row]:
    """Return the validation PnL (currency) of the best epoch by session.

    Args:
        trained: what training returned.
        session: int32[n], session date of each bar that validation earns.
        capital: initial, currency.

    Raises:
        DataError: the returns are of other sessions.
    """
    sessions = np.unique(session)
    returns = trained.best.validation.returns * capital
    if len(returns) != len(sessions):
        raise DataError(f"{len(returns)} validation returns for {len(sessions)} sessions")
    return [
        {"session": int(day), "pnl": float(pnl)} for day, pnl in zip(sessions, returns, strict=True)
    ]


def own_key(policy: Policy) -> Mapping[str, Any]:
    """Return fold_id and seed."""
    return {"fold_id": policy.labels["fold_id"], "seed": policy.seed}
