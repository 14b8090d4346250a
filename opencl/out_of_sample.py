"""The test window of a fold: the rows that evaluation may read, and episodes through them.

Every figure is recomputed in float64 from the fills (`backtest.evaluation.account`) and compared
with the device's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from backtest import rng
from backtest.agent.checkpoint import Policy
from backtest.config import Config
from backtest.data.session import sessions_per_year
from backtest.evaluation.account import Account, account, reconcile
from backtest.evaluation.baselines import DETERMINISTIC, deterministic_targets, random_targets
from backtest.evaluation.intervals import Interval
from backtest.evaluation.metrics import daily_returns, fold_metrics
from backtest.evaluation.rows import metric_columns, record_intervals
from backtest.experiment import Experiment, FoldMarket
from backtest.features.scaler import Scaler
from backtest.features.table import FeatureTable
from backtest.market.layout import Array
from backtest.market.tape import Tape
from backtest.splits import Fold
from opencl.devices import Device, select
from opencl.simulate import simulator


@dataclass(frozen=True)
class Episode:
    """One run through the test window with its account."""

    account: Account
    trace: Array  # `StepResult` records [n]
    metrics: Mapping[str, float | None]
    intervals: Mapping[str, Interval]  # over time, by metric name


@dataclass(frozen=True)
class OutOfSample:
    """The rows that evaluation may read of a fold, and the rules it plays by."""

    config: Config
    instrument: str
    market: FoldMarket
    table: FeatureTable
    session: Array  # int32[n], of the test bars
    key: Array  # uint32[2], seed 0

    @classmethod
    def open(cls, experiment: Experiment, name: str, fold: Fold, policy: Policy) -> OutOfSample:
        """Cut the test window's rows; scaler and price base come from a policy of the fold."""
        market = FoldMarket(
            experiment.config,
            experiment.instrument(name),
            fold,
            policy.base,
            Scaler(policy.center, policy.scale),
        )
        table = experiment.read_windows(name, [fold.key])
        session = experiment.bars(name).session[fold.test.start : fold.test.stop]
        return cls(experiment.config, name, market, table, session, rng.key(0, name, fold.key))

    @property
    def device(self) -> Device:
        """Where everything is played."""
        return select(self.config.runtime.device)

    @property
    def first(self) -> int:
        """Bar of the first decision."""
        return self.market.fold.test.start - 1

    @property
    def steps(self) -> int:
        """Number of decisions, and of equity rows."""
        return len(self.market.fold.test)

    @property
    def sessions(self) -> int:
        """Number of sessions."""
        return len(np.unique(self.session))

    @cached_property
    def tape(self) -> Tape:
        """What baselines walk."""
        return self.market.test(self.table)[0]

    def seen_by(self, policy: Policy) -> tuple[Tape, Array]:
        """Return the tape and the bars' states float32[n, 115] as a policy sees them."""
        return self.market.test(self.table, policy.foundation)

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

    def baselines(self, turnover: float) -> tuple[dict[str, Episode], list[Episode]]:
        """Play the deterministic baselines and the random draws, all in one simulation.

        Args:
            turnover: units a step, of the random draws.

        Returns:
            Deterministic ones by name, and the draws.
        """
        size = self.market.instrument.max_position
        decisions = self.table.slice(self.first, self.first + self.steps)
        fixed = deterministic_targets(decisions, size)
        draws = self.config.evaluation.random_draws
        random = random_targets(self.steps, draws, turnover, size, self.key)
        targets = np.concatenate([fixed, random], axis=1)
        start = np.full(targets.shape[1], self.first)
        _, trace = simulator(self.device).targets(self.tape, start, targets)
        count = len(DETERMINISTIC)
        return (
            {name: self.episode(trace[:, i], None) for i, name in enumerate(DETERMINISTIC)},
            [self.episode(trace[:, count + i], None, intervals=False) for i in range(draws)],
        )
