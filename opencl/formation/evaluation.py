"""EVALUATE: paired rollouts say what the banks and each of their skills were worth.

Every round plays the same episodes, with the same random numbers, without skills, with each bank
alone, and (rule solo) with each skill alone. Influence is computed afterwards, in torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from backtest import rng
from backtest.agent.bank import ABSTAIN, MISS, Bank, SlotState
from backtest.agent.bank.snapshot import Snapshot
from backtest.agent.bank.utility import influence_of, paired_delta
from backtest.market.layout import Array, End
from opencl.collector import experience as as_experience
from opencl.formation.actor import BANKS, Actor, Ground, pnl
from opencl.rollout import PolicySkills, Trajectories

LIVE = (SlotState.PROTECTED, SlotState.ACTIVE)


@dataclass
class Evaluated:
    """What EVALUATE did, beside the utilities in the banks.

    Attributes:
        steps: decisions taken, all sets of skills together.
        gradient_rows: rows taken backward for influence.
        influence: float64[N] by bank, summed over all applications, loss units.
        delta: Delta of each whole bank, mean of each round.
    """

    steps: int = 0
    gradient_rows: int = 0
    influence: dict[str, Array] = field(default_factory=dict)
    delta: dict[str, list[float]] = field(default_factory=dict)


def evaluate(
    actor: Actor,
    ground: Ground,
    banks: Mapping[str, Bank],
    stop: Callable[[], None] = lambda: None,
) -> Evaluated:
    """Judge banks on random sub-windows of the train window; changes them in place.

    Args:
        actor: the frozen policy.
        ground: bars of the train window.
        banks: closed ones by name.
        stop: called before each round; raises to stop.
    """
    settings = actor.config.skills
    done = Evaluated(
        influence={name: np.zeros(bank.slots) for name, bank in banks.items()},
        delta={name: [] for name in banks},
    )
    steps = min(settings.evaluate_steps, ground.steps)
    for index in range(settings.evaluate_rounds):
        stop()
        start = starts(actor, ground, steps, index)
        _round(actor, ground, banks, start, steps, done)
    return done


def starts(actor: Actor, ground: Ground, steps: int, index: int) -> Array:
    """Return the first bars of a round's episodes, int64[E]."""
    episodes = np.arange(actor.config.skills.evaluate_episodes)
    # rounds of training count from 0 in the same stage; these count down from the top
    u = rng.uniform(actor.key, rng.Stage.START, 2**16 - 1 - index, episodes, 0, 0)
    room = ground.steps - steps + 1
    return ground.first + (u.astype(np.float64) * room).astype(np.int64)


def _round(
    actor: Actor,
    ground: Ground,
    banks: Mapping[str, Bank],
    start: Array,
    steps: int,
    done: Evaluated,
) -> None:
    whole = {name: bank.snapshot(explore=True) for name, bank in banks.items()}
    alone = {
        name: live_slots(bank) if bank.section.utility_rule == "solo" else []
        for name, bank in banks.items()
    }
    sets: list[PolicySkills | None] = [None]
    sets += [_only(name, snapshot) for name, snapshot in whole.items()]
    sets += [
        _only(name, banks[name].snapshot(explore=True, only=slot))
        for name, slots in alone.items()
        for slot in slots
    ]
    out = actor.play(ground, start, steps, sets, portfolio=True)
    capital = float(ground.rollout.tape.params["initial_capital"])
    earned = pnl(out, capital).sum(axis=0).reshape(len(sets), len(start))  # [P, E]
    done.steps += int((out.end != End.DEAD).sum())
    place = 1 + len(whole)
    for index, (name, bank) in enumerate(banks.items(), 1):
        part = _part(out, index, len(start))
        _count_uses(bank, name, part)
        influence = _influence(actor, ground, name, whole[name], part, done)
        delta = paired_delta(earned[index], earned[0])
        if delta is not None:
            done.delta[name].append(float(delta.mean()))
        if bank.section.utility_rule == "solo":
            slots = alone[name]
            own = earned[place : place + len(slots)]
            place += len(slots)
            judge_alone(bank, slots, own, earned[0])
        else:
            judge_together(bank, influence, delta)


def live_slots(bank: Bank) -> list[int]:
    """Return the slots that a search may find."""
    state = bank.state
    return np.flatnonzero((state.used != 0) & np.isin(state.state, LIVE)).tolist()


def _only(name: str, snapshot: Snapshot) -> PolicySkills:
    return PolicySkills(**{name: snapshot})


def _part(out: Trajectories, index: int, episodes: int) -> Trajectories:
    """Return the episodes of one set of skills."""
    mine = slice(index * episodes, (index + 1) * episodes)
    assert out.portfolio is not None and out.slots is not None
    return Trajectories(
        start=out.start[mine],
        action=out.action[:, mine],
        reward=out.reward[:, mine],
        equity=out.equity[:, mine],
        end=out.end[:, mine],
        portfolio=out.portfolio[:, mine],
        trace=None,
        values=None,
        slots=out.slots[:, mine],
    )


def _count_uses(bank: Bank, name: str, part: Trajectories) -> None:
    assert part.slots is not None
    found = part.slots[as_experience(part).alive][:, BANKS.index(name)]
    uses = np.bincount(found[found >= 0], minlength=bank.slots).astype(np.int64)
    bank.add_uses(uses, uses > 0, int((found == MISS).sum()), int((found == ABSTAIN).sum()))


def _influence(
    actor: Actor,
    ground: Ground,
    name: str,
    snapshot: Snapshot,
    part: Trajectories,
    done: Evaluated,
) -> Array:
    """Return the influence of each slot in each episode, float64[E, N]."""
    assert part.slots is not None
    episodes, slots = part.reward.shape[1], len(snapshot.keys)
    total = np.zeros((episodes, slots))
    if not (part.slots[..., BANKS.index(name)] >= 0).any():
        return total
    decisions = actor.decisions(ground, as_experience(part))
    found = part.slots[decisions.step, decisions.episode, BANKS.index(name)]
    hits = np.flatnonzero((found >= 0) & decisions.complete)
    trapezoid = actor.config.skills.bank.influence_rule == "trapezoid"
    for rows in decisions.blocks(hits):
        added = snapshot.shift[found[rows]]
        after = decisions.gradients(rows, {name: added})[name]
        before = decisions.gradients(rows)[name] if trapezoid else after
        value = influence_of(before, after, added, trapezoid=trapezoid)
        np.add.at(total, (decisions.episode[rows], found[rows]), value.astype(np.float64))
        done.gradient_rows += len(rows) * (1 + trapezoid)
    done.influence[name] += total.sum(axis=0)
    return total


def judge_alone(bank: Bank, slots: list[int], own: Array, without: Array) -> None:
    """Move the utility of each live slot by its own paired rollouts; own is [slots, E]."""
    deltas = np.full((bank.slots, len(without)), np.nan, np.float32)
    if slots:
        found = paired_delta(own, without)
        if found is not None:
            deltas[slots] = found
    bank.solo_round(deltas)


def judge_together(bank: Bank, influence: Array, delta: Array | None) -> None:
    """Move utilities by each episode of the whole bank, in order."""
    if delta is None:
        bank.state.count("utility_skips", len(influence))
        return
    for row, signal in zip(influence, delta, strict=True):
        bank.reset_influence()
        for slot in np.flatnonzero(row):
            bank.add_influence(int(slot), float(row[slot]))
        bank.end_episode(float(signal))
