"""Acceptance of skills on bars: through forecaster, Actor and market, on planted regimes.

AR(1) of +-phi in random blocks; the base policy saw +phi only, skills are formed on later, mixed
bars, validation chooses, the test window judges. `python -m tests.acceptance` prints the tables.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from backtest import rng
from backtest.agent import train_fold
from backtest.agent.bank import Bank
from backtest.agent.checkpoint import Policy
from backtest.agent.foundation import bypass_mode, lay_foundation
from backtest.agent.plan import Plan
from backtest.agent.skills.choice import Trial, entries
from backtest.agent.skills.finetune import budget, train_on
from backtest.config import Config, Instrument, Synthetic, parse
from backtest.data.ingest import clean, read
from backtest.data.issues import Findings
from backtest.data.session import sessions_per_year
from backtest.evaluation.ablation import decisions_changed
from backtest.evaluation.intervals import total_interval
from backtest.experiment import FoldMarket
from backtest.features.table import FeatureTable, compute
from backtest.splits import WalkForward
from opencl.collector import DeviceCollector, DeviceEvaluator
from opencl.devices import select
from opencl.exchange import torch_device
from opencl.formation.actor import Actor, Ground
from opencl.formation.collection import collect
from opencl.formation.evaluation import evaluate, live_slots
from opencl.formation.validation import (
    Run,
    random_snapshots,
    trial,
    try_banks,
    walk,
    walk_policies,
)
from opencl.rollout import PolicySkills, Rollout
from opencl.training import shape

NAME = "regimes"
WARMUP = 605  # bars
RANDOM_BANKS = 8
# The settings of the original design, beside the shipped ones.
ORIGINAL = {"aggregate": 1, "centering": "none", "similarity_threshold": 0.7}
ORIGINAL_ALPHAS = (0.1, 0.3)


@dataclass(frozen=True)
class Size:
    """How large the experiment is."""

    learning: int = 10_000  # bars of +phi that train the base
    collection: int = 10_000  # mixed bars
    validation: int = 8_000
    test: int = 20_000
    updates: int = 2_500
    rounds: int = 8
    episodes: int = 256
    phi: float = 0.3
    block: int = 200  # bars of a regime
    mixed_base: bool = False  # the base is trained on mixed bars, too


FULL = Size()
# Strong regimes, so that a small budget can see them.
QUICK = Size(3_000, 3_000, 1_500, 3_000, 300, 1, 48, phi=0.6)


@dataclass(frozen=True)
class Arm:
    """One variant of one seed on the test window, against `none`; PnL in currency a bar."""

    variant: str
    alpha: float | None
    adopted: bool
    chosen: bool
    live: int  # skills that may be retrieved
    changed: int  # test decisions that differ
    validation_low: float | None
    delta: float  # net PnL a bar minus that of none
    low: float | None  # its own 95 % interval, stationary bootstrap by session
    high: float | None


@dataclass(frozen=True)
class Outcome:
    """One seed."""

    seed: int
    base: float  # net PnL a bar of none on the test window
    arms: tuple[Arm, ...]
    random: tuple[float, ...]  # delta of random-direction banks at the step bank's alpha
    seconds: float


def configuration(size: Size, bank: Mapping[str, Any], alphas: Sequence[float] | None) -> Config:
    """Return the shipped defaults with the scenario network and one step bank."""
    skills: dict[str, Any] = {
        "banks": ["step"],
        "bank": dict(bank),
        "evaluate_rounds": size.rounds,
        "evaluate_episodes": size.episodes,
        "collect_from": size.learning / (size.learning + size.collection),
    }
    if alphas is not None:
        skills["alphas"] = list(alphas)
    learner = {"updates": size.updates, "epochs": 4}
    return parse(
        {"network": {"kind": "scenario"}, "skills": skills, "learner": learner}, where=NAME
    )


def instrument(size: Size, seed: int) -> Instrument:
    """Return the planted market: hourly bars around the clock at 5,000 points."""
    first = 0 if size.mixed_base else WARMUP + size.learning
    bars = WARMUP + size.learning + size.collection + size.validation + size.test
    series = Synthetic(
        bars=bars,
        seed=seed,
        phi=size.phi,
        regime_bars=size.block,
        regime_from=first,
        sigma=1.2,
        price=5000.0,
    )
    return Instrument(
        source="synthetic", synthetic=series, bar="1h", tick_size=0.25, tx_cost_multiplier=1e-5
    )


@dataclass(frozen=True)
class _Market:
    config: Config
    market: FoldMarket
    table: FeatureTable
    session: np.ndarray


def _market(size: Size, seed: int, config: Config) -> _Market:
    settings = instrument(size, seed)
    findings = Findings(NAME, settings.source, settings.issues)
    raw, settings = read(NAME, settings, findings)
    bars, _ = clean(raw, settings, findings)
    table = compute(bars, config.features.adx_seed)
    plan = WalkForward(size.learning + size.collection, size.validation, size.test, warmup=WARMUP)
    (fold,) = plan.folds(len(bars))
    return _Market(config, FoldMarket.fit(config, settings, fold, table), table, bars.session)


def run(size: Size, seed: int, device_name: str = "auto") -> Outcome:
    """Train, form, choose and test one seed."""
    import torch

    torch.set_num_threads(1)
    clock = perf_counter()
    config = configuration(size, {}, None)
    made = _market(size, seed, config)
    market, table, session = made.market, made.table, made.session
    device = select(device_name)
    window = market.learning
    key, stream = rng.key(seed, NAME, "test"), rng.hash32(f"{NAME}|test")
    _, states = market.train(table)
    foundation = lay_foundation(
        config,
        table.slice(window.start, window.stop),
        states,
        tick_size=market.instrument.tick_size,
        seed=seed,
        stream=stream,
        device=torch_device(device),
    )
    grounds = {}
    for name, (tape, state) in {
        "learning": market.train(table, foundation),
        "collection": market.collected(table, foundation),
        "validation": market.validation(table, foundation),
        "test": market.test(table, foundation),
    }.items():
        rollout = Rollout(device, tape, state, shape(config))
        grounds[name] = Ground(rollout, state, session[tape.start : tape.stop])
    learning, validation = grounds["learning"], grounds["validation"]
    plan = Plan(
        bar_part=learning.states,
        first_bar=learning.first,
        learner=config.learner,
        network=config.network,
        seed=seed,
        stream=stream,
        forecaster=foundation.forecaster,
        bypass=bypass_mode(config.aux),
        device=torch_device(device),
    )
    trained = train_fold(
        plan,
        DeviceCollector(
            learning.rollout,
            key,
            config.learner.envs,
            config.learner.episode_steps,
            plan.device,
        ),
        DeviceEvaluator(
            {"train": learning.rollout, "validation": validation.rollout},
            {"train": learning.session, "validation": validation.session},
            key,
            sessions_per_year(market.instrument.calendar),
        ),
    )
    policy = Policy(
        state=trained.state_dict,
        network=config.network,
        branches=config.learner.branches,
        v_max=trained.v_max,
        center=market.scaler.center,
        scale=market.scaler.scale,
        base=market.base,
        seed=seed,
        config_hash="",
        epoch=trained.best_epoch,
        update=trained.best.update,
        steps=trained.steps,
        labels={},
        aux=foundation.arrays,
    )
    actor = Actor.of(config, policy, NAME, "test", device, torch_device(device))
    (none,) = walk(actor, grounds["test"], [None])
    (reference,) = walk(actor, validation, [None])
    arms, noise, rows = [], (), 0
    for label, bank, alphas in (("step", {}, None), ("original", ORIGINAL, ORIGINAL_ALPHAS)):
        other = replace(actor, config=configuration(size, bank, alphas))
        formed, seen = collect(other, grounds["collection"], other.new_banks())
        judged = evaluate(other, grounds["collection"], formed)
        rows = rows or seen.gradient_rows + judged.gradient_rows
        trials = try_banks(other, validation, formed, reference)
        arm, alpha = _test(other, grounds["test"], label, formed["step"], trials, none)
        arms.append(arm)
        if label == "step":
            snapshots = random_snapshots(other, formed["step"], alpha, RANDOM_BANKS)
            sets = [PolicySkills(step=snapshot) for snapshot in snapshots]
            runs = walk(other, grounds["test"], sets)
            noise = tuple(float((r.pnl - none.pnl).mean()) for r in runs)
    learner = config.learner
    collection = grounds["collection"]
    tuned = train_on(
        policy,
        replace(plan, bar_part=collection.states, first_bar=collection.first),
        DeviceCollector(collection.rollout, key, learner.envs, learner.episode_steps, plan.device),
        budget(rows, learner.batch),
        learner.epochs,
    )
    (found,) = walk_policies(actor, validation, [tuned.weights])
    tried = trial(actor, "finetune", {}, found, reference)
    (found,) = walk_policies(actor, grounds["test"], [tuned.weights])
    arms.append(_arm(grounds["test"], "finetune", None, 0, found, none, tried, actor))
    return Outcome(seed, float(none.pnl.mean()), tuple(arms), noise, perf_counter() - clock)


def _test(
    actor: Actor, ground: Ground, label: str, bank: Bank, trials: Sequence[Trial], none: Run
) -> tuple[Arm, float]:
    """Play a bank at the strength that validation chose; return its arm and that strength."""
    entry = next(e for e in entries(trials, ["step"], {"none": ""}) if e["variant"] == "step")
    alpha = entry["alpha"]["step"]
    tried = next(t for t in trials if t.alpha == entry["alpha"])
    (found,) = walk(actor, ground, [PolicySkills(step=bank.snapshot(alpha))])
    live = len(live_slots(bank))
    return _arm(ground, label, alpha, live, found, none, tried, actor), alpha


def _arm(
    ground: Ground,
    label: str,
    alpha: float | None,
    live: int,
    found: Run,
    none: Run,
    tried: Trial,
    actor: Actor,
) -> Arm:
    bars = len(none.pnl)
    total = total_interval(found.returns - none.returns, actor.key)
    gains = tried.gains and label != "finetune"
    return Arm(
        variant=label,
        alpha=alpha,
        adopted=gains,
        chosen=gains,
        live=live,
        changed=decisions_changed(found.action, found.end, none.action, none.end),
        validation_low=tried.delta.low,
        delta=float((found.pnl - none.pnl).mean()),
        low=None if total.low is None else total.low / bars,
        high=None if total.high is None else total.high / bars,
    )


def main() -> None:
    """Run seeds one after another and print the tables."""
    from tests.acceptance_report import report

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-7", help="first-last")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--mixed-base", action="store_true", help="the base saw both regimes")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    first, last = map(int, options.seeds.split("-"))
    size = replace(QUICK if options.quick else FULL, mixed_base=options.mixed_base)
    outcomes = []
    for seed in range(first, last + 1):
        outcomes.append(run(size, seed, options.device))
        print(f"seed {seed}: {outcomes[-1]}", flush=True)
    print(report(outcomes))
    if options.json:
        options.json.write_text(json.dumps([asdict(o) for o in outcomes], indent=1))


if __name__ == "__main__":
    main()
