"""Given target positions over an instrument's bars: kernel, float64 account and metrics.

For few strategies; `opencl.strategies` scores thousands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from backtest import rng
from backtest.config import Config
from backtest.data.bars import Bars
from backtest.data.session import sessions_per_year
from backtest.data.targets import Targets
from backtest.evaluation.account import Account, account, reconcile
from backtest.evaluation.intervals import Interval, sharpe_interval
from backtest.evaluation.metrics import daily_returns, fold_metrics
from backtest.evaluation.rows import metric_columns
from backtest.market.prices import price_tape
from opencl.devices import Device
from opencl.simulate import simulator


@dataclass(frozen=True)
class Outcome:
    """One strategy.

    Attributes:
        name: of the strategy.
        account: bar by bar, float64; its reward is not computed here.
        metrics: by name; None where undefined.
        sharpe: with its interval over time.
        difference: the largest between the device's equity and the account's, currency.
    """

    name: str
    account: Account
    metrics: Mapping[str, float | None]
    sharpe: Interval
    difference: float


def run_targets(config: Config, bars: Bars, targets: Targets, device: Device) -> list[Outcome]:
    """Trade the targets with market orders through `portfolio_sim_kernel`.

    Args:
        config: the experiment; its settings of this instrument hold the costs.
        bars: the instrument's bars.
        targets: what every strategy wants.
        device: runs the kernel.

    Raises:
        DataError: device and host equity differ by more than float32 can.
    """
    instrument, market = config.instrument_settings(bars.instrument), config.market
    first, steps = targets.first_bar, targets.steps
    tape, table = price_tape(config, bars, first, steps)
    count = len(targets.names)
    start = np.full(count, first)
    _, trace = simulator(device).targets(tape, start, targets.position)
    session = bars.session[first + 1 : first + 1 + steps]
    year = sessions_per_year(instrument.calendar)
    outcomes = []
    for place, name in enumerate(targets.names):
        found = account(trace[:, place], None, table, first, instrument, market)
        difference = reconcile(found, trace[:, place], instrument, market)
        trades = {column: found.trades[column] for column in ("bars", "pnl", "reason")}
        columns = metric_columns(found, session)
        metrics = fold_metrics(columns, trades, market.initial_capital, year)
        returns, _ = daily_returns(session, found.pnl, market.initial_capital)
        sharpe = sharpe_interval(
            returns,
            year,
            rng.key(0, bars.instrument, "simulate"),
            resamples=config.evaluation.bootstrap,
            confidence=config.evaluation.confidence,
        )
        outcomes.append(Outcome(name, found, metrics, sharpe, difference))
    return outcomes
