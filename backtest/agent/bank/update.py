"""What one emitted observation does to a bank: match a slot, or confirm a candidate.

VectorUpdate, CandidateLeader, PromoteSlot and DirectionEMA; ties always go to the lowest index.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from backtest.agent.bank.codes import (
    AGE_LIMIT,
    AGE_WEIGHT,
    LEAST_SHARE,
    MASS_GAIN,
    MASS_KEEP,
    NORM_RATE,
    Decision,
    SlotState,
)
from backtest.agent.bank.lifecycle import free_candidate, tick
from backtest.agent.bank.ordered import LEAST, cosines, norm, square
from backtest.agent.bank.rules import Rules
from backtest.agent.bank.state import BankState, Floats

F32 = np.float32
Mask = npt.NDArray[np.bool_]
Result = tuple[Decision, int]
NOTHING: Result = (Decision.NONE, -1)


class Observation(NamedTuple):
    """One emitted pseudo-residual; finite, |g| > 0."""

    x: Floats  # [K], centred context
    xx: Floats  # [], its square
    g: Floats  # [D], -dL/dh
    unit: Floats  # [D], g/|g|
    size: np.float32  # |g|


class Skill(NamedTuple):
    """The vectors of one slot or candidate."""

    key: Floats  # [K]
    direction: Floats  # [D], unit
    scale: np.float32
    correction: Floats  # [D]


def learn(state: BankState, rules: Rules, x: Floats, g: Floats, xx: Floats, gg: Floats) -> Result:
    """Apply one emitted observation: tick, |g| tests, match, candidates.

    Args:
        state: changed in place.
        rules: of the bank.
        x: float32[K], the centred context.
        g: float32[D], the pseudo-residual.
        xx: the square of x.
        gg: the square of g.

    Returns:
        The decision, and the slot of MATCH, FREE and EVICT (-1 for the others).
    """
    if not (np.isfinite(gg) and np.isfinite(xx)):
        state.count("non_finite")
        return NOTHING
    tick(state, rules)
    size = F32(np.sqrt(gg))
    if not size > 0 or too_small(state, size):
        state.count("small")
        return NOTHING
    seen = Observation(x, xx, g, g / size, size)
    slot = match(state, rules, seen)
    return (Decision.MATCH, slot) if slot >= 0 else propose(state, rules, seen)


def too_small(state: BankState, size: np.float32) -> bool:
    """Return whether |g| < 1e-3*norm_ema, then move norm_ema to `size` at rate 0.01."""
    before = F32(state.norm_ema)
    rate = F32(NORM_RATE)
    state.norm_ema[...] = (F32(1) - rate) * before + rate * size if before > 0 else size
    return bool(size < F32(LEAST_SHARE) * before)


def match(state: BankState, rules: Rules, seen: Observation) -> int:
    """Blend the observation into the slot it belongs to; return that slot or -1.

    Of the used slots, inactive ones too, whose key and direction both pass their thresholds: the
    one with the highest key cosine. An inactive one is revived.
    """
    key = cosines(state.keys, seen.x, seen.xx)
    way = cosines(state.directions, seen.unit, square(seen.unit))
    near = (state.used != 0) & (key >= state.threshold)
    nearest = best(key, near)
    if nearest >= 0:
        state.contacts[nearest] += 1
        mean = state.agreement[nearest]
        state.agreement[nearest] = mean + (way[nearest] - mean) / F32(state.contacts[nearest])
    slot = best(key, near & (way >= rules.direction_threshold))
    if slot < 0:
        return slot
    old = Skill(
        state.keys[slot], state.directions[slot], state.scale[slot], state.corrections[slot]
    )
    write_slot(state, slot, blended(old, seen, rules))
    state.observations[slot] += 1
    state.mass[slot] = F32(MASS_KEEP) * state.mass[slot] + F32(MASS_GAIN)
    state.age[slot] = 0
    if state.state[slot] == SlotState.INACTIVE:
        state.state[slot] = SlotState.PROTECTED
        state.protection[slot] = rules.protection_age
        state.count("revivals")
    state.count("matches")
    return slot


def propose(state: BankState, rules: Rules, seen: Observation) -> Result:
    """Confirm, restart or seed a candidate with an observation that no slot matched."""
    key = cosines(state.pool_keys, seen.x, seen.xx)
    way = cosines(state.pool_directions, seen.unit, square(seen.unit))
    waiting = state.pool_used != 0
    near = waiting & (key >= state.threshold)
    place = best(key, near & (way >= rules.direction_threshold))
    if place >= 0:
        decision, streak = Decision.CANDIDATE, int(state.pool_streak[place]) + 1
        skill = blended(candidate(state, place), seen, rules)
        state.count("confirmations")
    else:
        decision, streak, skill = Decision.RESET, 1, fresh(seen, rules)
        place = best(key, near)
        if place < 0 and waiting.all():
            place = int(np.argmin(state.pool_streak))
        elif place < 0:
            decision, place = Decision.SEED, int(np.argmin(waiting))
        state.count("seeds" if decision == Decision.SEED else "resets")
    state.pool_keys[place], state.pool_directions[place] = skill.key, skill.direction
    state.pool_scale[place], state.pool_corrections[place] = skill.scale, skill.correction
    state.pool_used[place], state.pool_streak[place], state.pool_clock[place] = 1, streak, 0
    return promote(state, rules, place) if streak >= rules.min_confirmations else (decision, -1)


def promote(state: BankState, rules: Rules, place: int) -> Result:
    """Commit a candidate to a slot, all or nothing; its place is freed in any case.

    The lowest FREE slot; else the INACTIVE, unprotected slot with the highest
    -clamp(utility, -1, 1) + min(1e-4*age, 0.5); else the candidate is dropped.
    """
    slot, decision = int(np.argmin(state.used)), Decision.FREE
    if state.used[slot]:
        idle = (state.state == SlotState.INACTIVE) & (state.protection == 0)
        aged = np.minimum(F32(AGE_WEIGHT) * state.age.astype(F32), F32(AGE_LIMIT))
        worth = np.clip(state.utility, F32(-1), F32(1))
        slot, decision = best(aged - worth, idle), Decision.EVICT
    if slot < 0:
        free_candidate(state, place)
        state.count("drops")
        return NOTHING
    write_slot(state, slot, candidate(state, place))
    streak = state.pool_streak[place]
    state.observations[slot], state.mass[slot] = streak, F32(streak)
    for cleared in (state.utility, state.uses, state.influence, state.retrieved, state.age):
        cleared[slot] = 0
    state.contacts[slot], state.agreement[slot] = 0, 0
    state.used[slot], state.state[slot] = 1, SlotState.PROTECTED
    state.protection[slot] = rules.protection_age
    free_candidate(state, place)
    state.count("promotions_free" if decision == Decision.FREE else "promotions_evict")
    return decision, slot


def fresh(seen: Observation, rules: Rules) -> Skill:
    """Return the skill of one observation; scale and correction clipped to max_correction."""
    scale = np.minimum(seen.size, rules.max_correction)
    correction = clipped(seen.g, rules) if rules.full else seen.unit * scale
    return Skill(seen.x, seen.unit, scale, correction)


def blended(old: Skill, seen: Observation, rules: Rules) -> Skill:
    """VectorUpdate: move every vector of a skill towards an observation."""
    direction = turned(old.direction, seen.unit, rules)
    scale = rules.keep_magnitude * old.scale + rules.beta_magnitude * seen.size
    scale = np.minimum(np.maximum(scale, F32(0)), rules.max_correction)
    return Skill(
        rules.keep_key * old.key + rules.beta_key * seen.x,
        direction,
        scale,
        rebuilt(old.correction, direction, scale, seen.g, rules),
    )


def turned(direction: Floats, unit: Floats, rules: Rules) -> Floats:
    """Return the average of two unit vectors, unit again; opposite ones leave it unchanged."""
    mixed = rules.keep_direction * direction + rules.beta_direction * unit
    length = square(mixed)
    if not length >= LEAST:
        return direction
    result: Floats = np.divide(mixed, np.sqrt(length))
    return result


def rebuilt(
    correction: Floats, direction: Floats, scale: np.float32, g: Floats, rules: Rules
) -> Floats:
    """Return direction*scale; in the full representation the average of g, its norm clipped."""
    if not rules.full:
        return direction * scale
    return clipped(rules.keep_correction * correction + rules.beta_correction * g, rules)


def clipped(vector: Floats, rules: Rules) -> Floats:
    """Return a vector of at most the norm max_correction."""
    length = norm(vector)
    return vector if length <= rules.max_correction else vector * (rules.max_correction / length)


def turn_slot(state: BankState, rules: Rules, slot: int, g: Floats) -> bool:
    """DirectionEMA: turn the direction of a PROTECTED or ACTIVE slot towards g; nothing else.

    Returns:
        Whether it was turned: False for another state, |g| = 0, or g not finite (counted).
    """
    gg = square(g)
    if not np.isfinite(gg):
        state.count("non_finite")
        return False
    alive = state.state[slot] in (SlotState.PROTECTED, SlotState.ACTIVE)
    if not (state.used[slot] and alive and gg > 0):
        return False
    direction = turned(state.directions[slot], g / F32(np.sqrt(gg)), rules)
    correction = state.corrections[slot]
    state.corrections[slot] = rebuilt(correction, direction, state.scale[slot], g, rules)
    state.directions[slot] = direction
    state.count("direction_updates")
    return True


def candidate(state: BankState, place: int) -> Skill:
    """Return the vectors of one place of the pool."""
    return Skill(
        state.pool_keys[place],
        state.pool_directions[place],
        state.pool_scale[place],
        state.pool_corrections[place],
    )


def write_slot(state: BankState, slot: int, skill: Skill) -> None:
    """Store the vectors of a skill."""
    state.keys[slot], state.directions[slot] = skill.key, skill.direction
    state.scale[slot], state.corrections[slot] = skill.scale, skill.correction


def best(values: npt.NDArray[Any], mask: Mask) -> int:
    """Return the lowest index of the highest value where `mask`; -1 when it is nowhere true."""
    return int(np.argmax(np.where(mask, values, -np.inf))) if mask.any() else -1
