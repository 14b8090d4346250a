"""Runs one seed of a control through the chain: features, training, test window, account."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backtest import rng
from backtest.agent import train_fold
from backtest.agent.plan import Plan
from backtest.controls import Kind, Outcome, Size, configuration, fold, instrument, planted
from backtest.data.ingest import clean, read
from backtest.data.issues import Findings
from backtest.data.session import sessions_per_year
from backtest.evaluation.account import account, reconcile
from backtest.evaluation.intervals import sharpe_interval
from backtest.evaluation.metrics import daily_returns
from backtest.evaluation.oracle import best_pnl
from backtest.experiment import FoldMarket
from backtest.features.table import compute
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
    rollouts = {}
    states = {}
    for window, (tape, state) in {
        "train": market.train(table),
        "validation": market.validation(table),
        "test": market.test(table),
    }.items():
        changed = planted(kind, table, state, tape.start, settings.tick_size, seed)
        if window == "train":
            changed[-1, 0] = state[-1, 0]  # its next difference lies outside the window
        rollouts[window] = Rollout(device, tape, changed, shape(config))
        states[window] = changed
    train, validation, test = (rollouts[w] for w in ("train", "validation", "test"))
    year = sessions_per_year(settings.calendar)
    session = bars.session
    trained = train_fold(
        Plan(
            bar_part=states["train"],
            first_bar=train.tape.start,
            learner=config.learner,
            network=config.network,
            seed=seed,
            stream=rng.hash32(f"control {kind}"),
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
