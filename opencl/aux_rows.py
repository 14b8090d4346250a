"""Rows of aux_verdict: every epoch in the validation window, the policy in the test window.

The reference is the same fold and seed of the study that differs in nothing but aux.alpha = false;
where the lake has its policy, it plays the same test window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from backtest.agent.aux_verdict import (
    action_counts,
    action_shares,
    epoch_rows,
    verdict_row,
    win_interval,
)
from backtest.agent.checkpoint import Policy, load_policy
from backtest.evaluation.rows import Row
from backtest.experiment import Experiment
from backtest.lake import read_json
from backtest.market.layout import Array
from opencl.collector import greedy
from opencl.out_of_sample import OutOfSample
from opencl.plays import Played
from opencl.rollout import Rollout
from opencl.training import shape
from opencl.variants import SeedSummary

FINAL = -1  # epoch of the row of the finished policy


@dataclass(frozen=True)
class Reference:
    """The same fold and seed without alpha."""

    fold_id: str
    summary: Mapping[str, Any]  # of `opencl.seed_training.train_seed`
    policy: Policy


def aux_tables(
    experiment: Experiment,
    window: OutOfSample,
    summaries: Sequence[SeedSummary],
    played: Mapping[int, Sequence[Played]],
) -> dict[str, list[Row]]:
    """Return aux_verdict and forecast_quality of all seeds; {} when nothing is forecast."""
    tables = {
        "aux_verdict": [
            row for s in summaries for row in aux_rows(experiment, window, s, played[s.seed])
        ],
        "forecast_quality": [
            {"seed": s.seed, "name": name, "value": value}
            for s in summaries
            for name, value in s.trained["aux_report"].items()
        ],
    }
    return {name: rows for name, rows in tables.items() if rows}


def aux_rows(
    experiment: Experiment, window: OutOfSample, summary: SeedSummary, played: Sequence[Played]
) -> list[Row]:
    """Return the rows of one seed; none when the study has no forecast.

    The final row counts the trades and actions of the test window; the bypass's weights and the
    advantages are those of the best epoch.

    Args:
        experiment: the study.
        window: the test window.
        summary: of the seed.
        played: its variants in the test window, `none` first.
    """
    figures = summary.trained["aux_verdict"]
    if not figures:
        return []
    learned = window.config.learner.branches
    reference = find_reference(experiment, window, summary.seed)
    rows = epoch_rows(
        figures,
        None if reference is None else reference.summary["aux_verdict"],
        window.config.evaluation.confidence,
    )
    best = summary.trained["policy"]["best_epoch"]
    metrics = played[0].episode.metrics
    trades = int(metrics["n_trades"] or 0)
    wins = round((metrics["win_rate"] or 0.0) * trades)
    counts = action_counts(played[0].action, played[0].episode.trace["end"])
    other = None if reference is None else action_shares(played_counts(window, reference.policy))
    final = verdict_row(
        next(row for row in figures if row["epoch"] == best),
        win_interval(wins, trades, window.config.evaluation.confidence),
        {name: share for name, share in action_shares(counts).items() if name in learned},
        other,
    )
    key = {
        "seed": summary.seed,
        "reference_fold_id": None if reference is None else reference.fold_id,
    }
    return [{**key, **row} for row in (*rows, {"epoch": FINAL, **final})]


def find_reference(experiment: Experiment, window: OutOfSample, seed: int) -> Reference | None:
    """Return the run without alpha that this one is compared with; None: the lake has none.

    Raises:
        StoreError: its files are damaged.
    """
    config, lake, fold = experiment.config, experiment.lake, window.market.fold
    if not config.aux.alpha:
        return None
    aux = config.aux.model_copy(update={"alpha": False})
    other = Experiment(config.model_copy(update={"aux": aux}), lake)
    fold_id = other.fold_id(window.instrument, fold)
    folder = lake.policies(other.study_id, window.instrument, fold.key, fold_id)
    path = folder / f"seed_{seed}.json"
    if not path.is_file():
        return None
    summary = read_json(path)
    policy = load_policy(
        lake.root / summary["policy"]["path"], network=config.network, config_hash=other.study_id
    )
    return Reference(fold_id, summary, policy)


def played_counts(window: OutOfSample, policy: Policy) -> Array:
    """Return how often a policy takes each of the 13 values in the test window, int64[13]."""
    tape, state = window.seen_by(policy)
    rollout = Rollout(window.device, tape, state, shape(window.config))
    start = np.array([[window.first]])
    out = greedy(rollout, [policy.weights], start, window.steps, window.key[None])
    return action_counts(out.action[:, 0], out.end[:, 0])
