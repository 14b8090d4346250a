"""The choice of a variant: greedy runs through the validation window, paired with `none`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from backtest.agent import streams
from backtest.agent.bank import Bank
from backtest.agent.bank.placebo import placebo
from backtest.agent.bank.snapshot import Snapshot
from backtest.agent.kinds import Weights
from backtest.agent.skills.choice import Strength, Trial, best, paired_gain
from backtest.config import Config
from backtest.evaluation.ablation import decisions_changed
from backtest.evaluation.intervals import Interval
from backtest.evaluation.metrics import daily_pnl
from backtest.market.layout import Array
from opencl.collector import greedy
from opencl.formation.actor import Actor, Ground, pnl
from opencl.rollout import PolicySkills, Trajectories


@dataclass(frozen=True)
class Run:
    """One greedy run through a window.

    Attributes:
        action: uint8[n, 4].
        end: uint8[n], `End`.
        returns: float64[sessions], net PnL, currency.
        pnl: float64[n], net PnL of every bar, currency.
    """

    action: Array
    end: Array
    returns: Array
    pnl: Array


def walk(actor: Actor, ground: Ground, sets: Sequence[PolicySkills | None]) -> list[Run]:
    """Play the whole window once with each set of skills."""
    start = np.array([ground.first])
    out = actor.play(ground, start, ground.steps, sets, slots=False)
    return _runs(out, ground)


def walk_policies(actor: Actor, ground: Ground, policies: Sequence[Weights]) -> list[Run]:
    """Play the whole window once under each policy, without skills."""
    start = np.full((len(policies), 1), ground.first)
    keys = np.repeat(actor.key[None], len(policies), axis=0)
    return _runs(greedy(ground.rollout, policies, start, ground.steps, keys), ground)


def _runs(out: Trajectories, ground: Ground) -> list[Run]:
    earned = pnl(out, float(ground.rollout.tape.params["initial_capital"]))
    return [
        Run(
            out.action[:, i],
            out.end[:, i],
            daily_pnl(ground.session[1:], earned[:, i])[1],
            earned[:, i],
        )
        for i in range(earned.shape[1])
    ]


def trial(actor: Actor, variant: str, alpha: Strength, run: Run, reference: Run) -> Trial:
    """Return what a run says of a variant beside that of `none`."""
    return Trial(
        variant=variant,
        alpha=alpha,
        changed=decisions_changed(run.action, run.end, reference.action, reference.end),
        returns=run.returns,
        delta=gain(actor.config, run, reference, actor.key),
    )


def gain(config: Config, run: Run, reference: Run, key: Array) -> Interval:
    """Return the paired gain a session, in standard deviations of the reference's PnL."""
    return paired_gain(run.returns, reference.returns, key, config.evaluation)


def try_banks(
    actor: Actor, ground: Ground, banks: Mapping[str, Bank], reference: Run
) -> list[Trial]:
    """Try each bank at every strength, then both together at the best of each.

    A bank without a live skill cannot change anything and is tried all the same, as inert.
    """
    alphas = actor.config.skills.alphas
    strengths = [(name, alpha) for name in banks for alpha in alphas]
    sets: list[PolicySkills | None] = [
        PolicySkills(**{name: banks[name].snapshot(alpha)}) for name, alpha in strengths
    ]
    runs = walk(actor, ground, sets)
    trials = [
        trial(actor, name, {name: alpha}, run, reference)
        for (name, alpha), run in zip(strengths, runs, strict=True)
    ]
    if len(banks) > 1:
        alpha = {name: strongest(trials, name, alphas[0]) for name in banks}
        snapshots = {name: banks[name].snapshot(a) for name, a in alpha.items()}
        (run,) = walk(actor, ground, [PolicySkills(**snapshots)])
        trials.append(trial(actor, "both", alpha, run, reference))
    return trials


def strongest(trials: Sequence[Trial], name: str, otherwise: float) -> float:
    """Return the strength at which a bank did best."""
    found = best([t for t in trials if t.variant == name])
    return otherwise if found is None else found.alpha[name]


def random_snapshots(actor: Actor, bank: Bank, alpha: float, count: int) -> list[Snapshot]:
    """Return a bank with its keys and scales and random directions, `count` times."""
    seed, stream = actor.policy.seed, actor.stream
    draws = (
        streams.generator(seed, stream, streams.Stage.DIRECTION, index) for index in range(count)
    )
    return [placebo(bank, draw).snapshot(alpha) for draw in draws]
