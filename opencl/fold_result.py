"""The result of one fold: policies and baselines through its test window, into Parquet.

All seeds run in one rollout, all baselines in one simulation; every figure is then recomputed in
float64 from the fills (`backtest.evaluation.account`) and compared with the device's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from backtest import rng
from backtest.agent.checkpoint import Policy, load_policy
from backtest.config import Config
from backtest.data.session import sessions_per_year
from backtest.errors import DataError
from backtest.evaluation.account import Account, account, reconcile
from backtest.evaluation.baselines import (
    DETERMINISTIC,
    RANDOM,
    deterministic_targets,
    random_targets,
)
from backtest.evaluation.fold_rows import feature_rows, fold_row
from backtest.evaluation.intervals import Interval
from backtest.evaluation.metrics import daily_returns, fold_metrics
from backtest.evaluation.rows import (
    DETERMINISTIC_SEED,
    Row,
    as_chosen,
    component_rows,
    equity_columns,
    metric_columns,
    metric_rows,
    over_seeds,
    record_intervals,
    stacked,
    trade_columns,
)
from backtest.experiment import Experiment, FoldMarket
from backtest.features.scaler import Scaler
from backtest.features.table import FeatureTable, feature_hash
from backtest.lake import read_json
from backtest.manifest import FoldHeader, Manifest
from backtest.market.layout import BRANCHES, Array
from backtest.market.tape import Tape
from backtest.schema import declared
from backtest.splits import Fold
from backtest.store import write_fold_result
from opencl.collector import greedy
from opencl.devices import select
from opencl.rollout import Rollout
from opencl.simulate import simulator
from opencl.training import shape


@dataclass(frozen=True)
class Episode:
    """One run through the test window with its account."""

    account: Account
    trace: Array  # `StepResult` records [n]
    metrics: Mapping[str, float | None]
    intervals: Mapping[str, Interval]  # over time, by metric name


# An episode with the seed, variant and policy_kind of its rows.
Labelled = tuple[dict[str, Any], Episode]


@dataclass(frozen=True)
class TestWindow:
    """The rows that evaluation may read of a fold, and the rules it plays by."""

    config: Config
    instrument: str
    market: FoldMarket
    table: FeatureTable
    tape: Tape
    state: Array
    session: Array  # int32[n], of the test bars
    key: Array  # uint32[2], seed 0

    __test__ = False  # no test case, whatever its name

    @property
    def first(self) -> int:
        """Bar of the first decision."""
        return self.market.fold.test.start - 1

    @property
    def steps(self) -> int:
        """Number of decisions, and of equity rows."""
        return len(self.market.fold.test)

    def episode(self, trace: Array, order: Array | None, *, intervals: bool = True) -> Episode:
        """Account for one trace, compare host and device, and compute its metrics.

        Args:
            trace: `StepResult` records [steps].
            order: integers [steps], `Order`; None: market orders.
            intervals: compute those of the metrics as well.
        """
        settings, rules = self.market.instrument, self.config.market
        found = account(trace, order, self.table, self.first, settings, rules)
        reconcile(found, trace, settings, rules)
        year, capital = sessions_per_year(settings.calendar), rules.initial_capital
        columns = metric_columns(found, self.session)
        metrics = fold_metrics(columns, found.trades, capital, year)
        metrics["liquidation_cost"] = found.liquidation_cost
        if not intervals:
            return Episode(found, trace, metrics, {})
        returns, _ = daily_returns(self.session, found.pnl, capital)
        chance = self.config.evaluation
        spread = record_intervals(returns, found.trades, year, self.key, chance)
        return Episode(found, trace, metrics, spread)


def evaluate_fold(
    experiment: Experiment, instrument: str, fold_key: str, run_id: str
) -> tuple[Manifest, dict[str, Any]]:
    """Play policies and baselines through a fold's test window and write the fold's result.

    Returns:
        The manifest, and figures for people: Sharpe and net return by seed and baseline.

    Raises:
        DataError: a policy is missing, or device and host do not agree.
        StoreError: a file is missing or damaged.
    """
    config = experiment.config
    fold = experiment.open_fold(instrument, fold_key)
    fold_id = experiment.fold_id(instrument, fold)
    header = FoldHeader(experiment.study_id, instrument, fold_key, fold_id, run_id)
    summaries = policy_summaries(experiment, instrument, fold_key, fold_id)
    policies = [
        load_policy(
            experiment.lake.root / s["policy"]["path"],
            network=config.network,
            config_hash=experiment.study_id,
        )
        for s in summaries
    ]
    window = _window(experiment, instrument, fold, policies[0])
    learned = _play_policies(window, policies)
    turnover = float(np.mean([e.metrics["turnover"] for e in learned]))
    fixed, random = _play_baselines(window, turnover / window.steps)
    seeds = [s["policy"]["seed"] for s in summaries]
    recorded = [_recorded(s, run_id, config.learner.branches) for s in summaries]
    tables = {
        "fold": [fold_row(fold, experiment.bars(instrument), feature_hash(window.table))],
        **{name: [row for rows in recorded for row in rows[name]] for name in recorded[0]},
        "feature_stat": feature_rows(window.table, fold, window.market.scaler),
        **_episode_tables(window, seeds, learned, fixed, random),
    }
    manifest = write_fold_result(experiment.lake, header, tables)
    shown = {f"none seed {s}": e for s, e in zip(seeds, learned, strict=True)}
    shown |= dict(zip(DETERMINISTIC, fixed, strict=True))
    return manifest, {name: dict(episode.metrics) for name, episode in shown.items()}


def policy_summaries(
    experiment: Experiment, instrument: str, fold_key: str, fold_id: str
) -> list[dict[str, Any]]:
    """Read the summaries of all seeds of a fold.

    Raises:
        DataError: a seed was not trained.
    """
    folder = experiment.lake.policies(experiment.study_id, instrument, fold_key, fold_id)
    found = []
    for seed in experiment.config.study.seeds:
        path = folder / f"seed_{seed}.json"
        if not path.is_file():
            raise DataError(
                f"{path}: no policy of {instrument} {fold_key} seed {seed}; materialise asset "
                "policy of this partition first"
            )
        found.append(read_json(path))
    return found


def _window(experiment: Experiment, instrument: str, fold: Fold, policy: Policy) -> TestWindow:
    """Cut the test window's rows; scaler and price base come from the policy."""
    config = experiment.config
    market = FoldMarket(
        config,
        experiment.instrument(instrument),
        fold,
        policy.base,
        Scaler(policy.center, policy.scale),
    )
    table = experiment.read_windows(instrument, [fold.key])
    tape, state = market.test(table)
    session = experiment.bars(instrument).session[fold.test.start : fold.test.stop]
    key = rng.key(0, instrument, fold.key)
    return TestWindow(config, instrument, market, table, tape, state, session, key)


def _play_policies(window: TestWindow, policies: Sequence[Policy]) -> list[Episode]:
    rollout = Rollout(
        select(window.config.runtime.device), window.tape, window.state, shape(window.config)
    )
    start = np.full((len(policies), 1), window.first)
    keys = np.repeat(window.key[None], len(policies), axis=0)
    weights = [policy.weights for policy in policies]
    out = greedy(rollout, weights, start, window.steps, keys, trace=True)
    assert out.trace is not None
    return [window.episode(out.trace[:, i], out.action[:, i, 2]) for i in range(len(policies))]


def _play_baselines(window: TestWindow, turnover: float) -> tuple[list[Episode], list[Episode]]:
    """Play the deterministic baselines and the random draws, all in one simulation."""
    size = window.market.instrument.max_position
    decisions = window.table.slice(window.first, window.first + window.steps)
    fixed = deterministic_targets(decisions, size)
    draws = window.config.evaluation.random_draws
    random = random_targets(window.steps, draws, turnover, size, window.key)
    targets = np.concatenate([fixed, random], axis=1)
    start = np.full(targets.shape[1], window.first)
    _, trace = simulator(select(window.config.runtime.device)).targets(window.tape, start, targets)
    count = len(DETERMINISTIC)
    return (
        [window.episode(trace[:, i], None) for i in range(count)],
        [window.episode(trace[:, count + i], None, intervals=False) for i in range(draws)],
    )


def _episode_tables(
    window: TestWindow,
    seeds: Sequence[int],
    learned: Sequence[Episode],
    fixed: Sequence[Episode],
    random: Sequence[Episode],
) -> dict[str, Any]:
    """Return the tables equity, trade, metric and reward_component."""
    sessions = len(np.unique(window.session))
    policies: list[Labelled] = [
        ({"seed": seed, "variant": "none", "policy_kind": "learned"}, e)
        for seed, e in zip(seeds, learned, strict=True)
    ]
    baselines: list[Labelled] = [
        ({"seed": DETERMINISTIC_SEED, "variant": name, "policy_kind": "baseline"}, e)
        for name, e in zip(DETERMINISTIC, fixed, strict=True)
    ]
    draws: list[Labelled] = [
        ({"seed": draw, "variant": RANDOM, "policy_kind": "baseline"}, e)
        for draw, e in enumerate(random)
    ]
    metric: list[Row] = []
    for key, e in (*policies, *baselines, *draws):
        metric += metric_rows(e.metrics, key, sessions, e.intervals)
    for group in (policies, draws):
        key = {name: group[0][0][name] for name in ("variant", "policy_kind")}
        values = [[e.metrics for _, e in group]]
        metric += over_seeds(values, key, window.key, window.config.evaluation)
    shown = [*policies, *baselines, draws[0]]
    return {
        "equity": stacked([equity_columns(e.account, key) for key, e in shown]),
        "trade": stacked([trade_columns(e.account, window.table, key) for key, e in shown]),
        "metric": [*metric, *as_chosen(metric, "none")],
        "reward_component": [
            row
            for key, e in shown
            for row in component_rows(
                window.tape.params, e.trace, {"seed": key["seed"], "variant": key["variant"]}
            )
        ],
    }


def _recorded(summary: Mapping[str, Any], run_id: str, learned: Collection[str]) -> dict[str, Any]:
    """Return the rows of one seed's summary as the store takes them.

    Args:
        summary: of `opencl.training.train_seed`.
        run_id: this execution, which writes the rows; an earlier one may have trained.
        learned: branches of the action that the network learns.
    """
    names = set(declared()["curve"].schema.names)
    # a branch that is not learned has no entropy
    fixed = {f"entropy_{branch}": None for branch in BRANCHES if branch not in learned}
    trial = summary["trial"]
    return {
        "policy": [{**summary["policy"], "run_id": run_id}],
        "curve": [
            {k: v for k, v in (row | fixed).items() if k in names} for row in summary["curve"]
        ],
        # JSON holds a time as text
        "trial": [{**trial, "started": datetime.fromisoformat(trial["started"])}],
        "trial_return": [{"trial_id": trial["trial_id"], **row} for row in summary["trial_return"]],
    }
