"""The result of one fold: policies and baselines through its test window, into Parquet.

All seeds run in one rollout, all baselines in one simulation; every figure is then recomputed in
float64 from the fills (`backtest.evaluation.account`) and compared with the device's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from backtest.evaluation.intervals import Interval, sharpe_interval
from backtest.evaluation.metrics import daily_returns, fold_metrics
from backtest.evaluation.rows import (
    DETERMINISTIC_SEED,
    Row,
    as_chosen,
    component_rows,
    equity_rows,
    metric_columns,
    metric_rows,
    over_seeds,
    trade_rows,
)
from backtest.experiment import Experiment, FoldMarket
from backtest.features.scaler import Scaler
from backtest.features.table import FeatureTable, feature_hash
from backtest.lake import read_json
from backtest.manifest import FoldHeader, Manifest
from backtest.market.layout import Array
from backtest.market.tape import Tape
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
    sharpe: Interval | None


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

    def episode(self, trace: Array, order: Array | None, *, interval: bool = True) -> Episode:
        """Account for one trace, compare host and device, and compute its metrics.

        Args:
            trace: `StepResult` records [steps].
            order: integers [steps], `Order`; None: market orders.
            interval: bootstrap the Sharpe as well.
        """
        settings, rules = self.market.instrument, self.config.market
        found = account(trace, order, self.table, self.first, settings, rules)
        reconcile(found, trace, settings, rules)
        columns = metric_columns(found, self.session)
        trades = {name: found.trades[name] for name in ("bars", "pnl", "reason")}
        year = sessions_per_year(settings.calendar)
        values = fold_metrics(columns, trades, rules.initial_capital, year)
        return Episode(found, trace, values, self._sharpe(found) if interval else None)

    def _sharpe(self, found: Account) -> Interval:
        chance = self.config.evaluation
        returns, _ = daily_returns(self.session, found.pnl, self.config.market.initial_capital)
        return sharpe_interval(
            returns,
            sessions_per_year(self.market.instrument.calendar),
            self.key,
            resamples=chance.bootstrap,
            confidence=chance.confidence,
        )


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
    fold = experiment.fold(instrument, fold_key)
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
    turnover = float(
        np.mean([np.abs(np.diff(e.account.position, prepend=0.0)).sum() for e in learned])
    )
    fixed, random = _play_baselines(window, turnover / window.steps)
    seeds = [s["policy"]["seed"] for s in summaries]
    bars = experiment.bars(instrument)
    row = fold_row(fold, bars, feature_hash(window.table))
    tables = {
        "fold": [row],
        "policy": [s["policy"] for s in summaries],
        "curve": [_declared(row) for s in summaries for row in s["curve"]],
        "trial": [_trial(s["trial"]) for s in summaries],
        "trial_return": [
            {"trial_id": s["trial"]["trial_id"], **row}
            for s in summaries
            for row in s["trial_return"]
        ],
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
        [window.episode(trace[:, count + i], None, interval=False) for i in range(draws)],
    )


def _episode_tables(
    window: TestWindow,
    seeds: Sequence[int],
    learned: Sequence[Episode],
    fixed: Sequence[Episode],
    random: Sequence[Episode],
) -> dict[str, Any]:
    """Return the tables equity, trade, metric and reward_component."""
    time = {int(b): int(t) for b, t in zip(window.table["bar"], window.table.time, strict=True)}
    n = len(np.unique(window.session))
    chance = window.config.evaluation
    labelled = [
        ({"seed": seed, "variant": "none", "policy_kind": "learned"}, e)
        for seed, e in zip(seeds, learned, strict=True)
    ]
    labelled += [
        ({"seed": DETERMINISTIC_SEED, "variant": name, "policy_kind": "baseline"}, e)
        for name, e in zip(DETERMINISTIC, fixed, strict=True)
    ]
    draws = [
        ({"seed": draw, "variant": RANDOM, "policy_kind": "baseline"}, e)
        for draw, e in enumerate(random)
    ]
    shown = [*labelled, draws[0]]
    columns = [equity_rows(e.account, key) for key, e in shown]
    metric: list[Row] = []
    for key, e in [*labelled, *draws]:
        metric += metric_rows(e.metrics, key, n, e.sharpe)
    for key, group in (
        ({"variant": "none", "policy_kind": "learned"}, learned),
        ({"variant": RANDOM, "policy_kind": "baseline"}, random),
    ):
        metric += over_seeds(
            [[e.metrics for e in group]],
            key,
            window.key,
            resamples=chance.bootstrap,
            confidence=chance.confidence,
        )
    params = window.tape.params
    return {
        "equity": {name: np.concatenate([c[name] for c in columns]) for name in columns[0]},
        "trade": [row for key, e in shown for row in trade_rows(e.account, time, key)],
        "metric": [*metric, *as_chosen(metric, "none")],
        "reward_component": [
            row
            for key, e in shown
            for row in component_rows(
                params, e.trace, {"seed": key["seed"], "variant": key["variant"]}
            )
        ],
    }


CURVE = (
    "fold_id",
    "seed",
    "epoch",
    "loss",
    "q_mean",
    "epsilon",
    "train_sharpe",
    "validation_sharpe",
    "entropy_direction",
    "entropy_magnitude",
    "entropy_order",
    "entropy_urgency",
    "steps_per_s",
    "updates_per_s",
)


def _trial(row: Mapping[str, Any]) -> Row:
    """Return the row of table trial; JSON holds its time as text."""
    return {**row, "started": datetime.fromisoformat(row["started"])}


def _declared(row: Mapping[str, Any]) -> Row:
    """Return the columns of table curve; the summary holds more."""
    return {name: row.get(name) for name in CURVE}
