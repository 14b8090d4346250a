"""Runs one seed of a control through the chain: features, training, test window, account."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from backtest import rng
from backtest.agent import train_fold
from backtest.agent.foundation import bypass_mode, lay_foundation
from backtest.agent.plan import Plan
from backtest.controls import Kind, Outcome, Size, configuration, fold, instrument, planted
from backtest.data.ingest import clean, read
from backtest.data.issues import Findings
from backtest.data.session import sessions_per_year
from backtest.evaluation.account import account, reconcile
from backtest.evaluation.intervals import sharpe_interval
from backtest.evaluation.metrics import daily_returns
from backtest.evaluation.oracle import best_pnl
from backtest.experiment import FoldMarket, with_forecast
from backtest.features.table import compute
from backtest.market.layout import Array
from backtest.market.tape import Tape
from opencl.collector import DeviceCollector, DeviceEvaluator, greedy
from opencl.devices import select
from opencl.rollout import Rollout
from opencl.training import shape


@dataclass(frozen=True)
class ControlSpec:
    """One seed of one control; plain values only."""

    kind: Kind
    size: Size
    seed: int
    device: str = "auto"


def run_control(spec: ControlSpec) -> Outcome:
    """Train on the control's market and trade its test window."""
    import torch

    torch.set_num_threads(1)
    kind, size, seed = spec.kind, spec.size, spec.seed
    settings, config = instrument(kind, size, seed), configuration(kind, size)
    findings = Findings(kind, settings.source, settings.issues)
    raw, settings = read(kind, settings, findings)
    bars, _ = clean(raw, settings, findings)
    table = compute(bars, config.features.adx_seed)
    plan = fold(size)
    market = FoldMarket.fit(config, settings, plan, table)
    device = select(spec.device)
    key = rng.key(seed, f"control {kind}", "test")
    stream = rng.hash32(f"control {kind}")

    def seen(tape: Tape, state: Array) -> tuple[Tape, Array]:
        return tape, planted(kind, table, state, tape.start, settings.tick_size, seed)

    tape, state = market.train(table)
    _, train_state = seen(tape, state)
    train_state[-1, 0] = state[-1, 0]  # its next difference lies outside the window
    foundation = lay_foundation(
        config,
        table.slice(plan.train.start, plan.train.stop),
        train_state,
        tick_size=settings.tick_size,
        seed=seed,
        stream=stream,
    )
    made = partial(Rollout, device, shape=shape(config))
    forecast = foundation.forecast_train(len(train_state))
    train = made(*with_forecast(tape, train_state, forecast))
    validation, test = (
        made(*with_forecast(tape, state, foundation.forecast(state)))
        for tape, state in (seen(*market.validation(table)), seen(*market.test(table)))
    )
    year = sessions_per_year(settings.calendar)
    session = bars.session
    trained = train_fold(
        Plan(
            bar_part=train_state,
            first_bar=train.tape.start,
            learner=config.learner,
            network=config.network,
            seed=seed,
            stream=stream,
            forecaster=foundation.forecaster,
            bypass=bypass_mode(config.aux),
        ),
        DeviceCollector(train, key, config.learner.envs, config.learner.episode_steps),
        DeviceEvaluator(
            {"train": train, "validation": validation},
            {
                "train": session[train.tape.start : train.tape.stop],
                "validation": session[validation.tape.start : validation.tape.stop],
            },
            key,
            year,
        ),
    )
    first, steps = test.tape.start, len(plan.test)
    out = greedy(test, [trained.weights], np.array([[first]]), steps, key[None], trace=True)
    assert out.trace is not None
    trace, rules = out.trace[:, 0], config.market
    found = account(trace, out.action[:, 0, 2], table, first, settings, rules)
    reconcile(found, trace, settings, rules)
    returns, _ = daily_returns(
        session[plan.test.start : plan.test.stop], found.pnl, rules.initial_capital
    )
    size_ = settings.max_position
    best = best_pnl(test.tape, first, steps, np.array([-size_, 0.0, size_]))
    return Outcome(
        kind,
        seed,
        sharpe_interval(returns, year, key),
        float(found.pnl.mean()),
        float(found.gross.mean()),
        float(found.pnl.sum()) / best,
    )
