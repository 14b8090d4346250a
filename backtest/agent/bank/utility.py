"""Whether skills paid: influence, utility, and paired rollouts with common random numbers.

Influence says that a skill moved the state the way learning wanted; utility says that it paid.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from backtest.agent.bank.codes import LEAST_DELTA, SlotState
from backtest.agent.bank.ordered import ordered_sum
from backtest.agent.bank.rules import Rules
from backtest.agent.bank.state import BankState, Floats

F32 = np.float32
LEAST_BATCH = 8  # pairs; a smaller batch has no usable deviation
LEAST_DEVIATION = 1e-9  # currency


def paired_delta(
    with_skills: npt.NDArray[np.float64], without: npt.NDArray[np.float64]
) -> Floats | None:
    """Return clip((J_with - J_without)/s, -1, 1) of each pair, float32[E].

    s is the standard deviation (ddof 1) of J_without over the batch.

    Args:
        with_skills: float64[..., E], net PnL with the skills, currency.
        without: float64[E], net PnL of the same bars and random stream without them.

    Returns:
        The deltas, or None: fewer than 8 pairs, s < 1e-9, or a PnL that is not finite.
    """
    if without.shape[-1] < LEAST_BATCH:
        return None
    if not (np.isfinite(without).all() and np.isfinite(with_skills).all()):
        return None
    deviation = without.std(ddof=1)
    if deviation < LEAST_DEVIATION:
        return None
    delta: Floats = np.clip((with_skills - without) / deviation, -1, 1).astype(F32)
    return delta


def influence_of(before: Floats, after: Floats, d: Floats, *, trapezoid: bool = True) -> Floats:
    """Return the influence float32[B] of one application of each correction.

    1/2*(g(h) + g(h + d))^T d, exact on quadratics (trapezoid), or g(h + d)^T d (end point).

    Args:
        before: float32[B, D], g at h.
        after: float32[B, D], g at h + d, same action and target.
        d: float32[B, D], the correction that was added.
        trapezoid: which of the two rules.
    """
    return ordered_sum(F32(0.5) * (before + after) * d) if trapezoid else ordered_sum(after * d)


def participation(state: BankState, rules: Rules, delta: np.float32) -> int:
    """U += beta*(|I|/sum|I|)*(Delta - U) for every used slot with I != 0; return how many."""
    weight = np.abs(state.influence)
    acted = (state.used != 0) & (state.state != SlotState.CANDIDATE) & (weight > 0)
    share = weight / ordered_sum(weight) if acted.any() else weight
    moved = state.utility + (rules.beta_utility * share) * (delta - state.utility)
    state.utility[acted] = moved[acted]
    return int(acted.sum())


def original(state: BankState, rules: Rules, delta: np.float32) -> int:
    """U = (1 - beta)*U + beta*(Delta*max(I, 0)/sum max(I, 0)) where I > 0; return how many."""
    weight = np.maximum(state.influence, F32(0))
    acted = (state.used != 0) & (state.state != SlotState.CANDIDATE) & (weight > 0)
    share = weight / ordered_sum(weight) if acted.any() else weight
    moved = rules.keep_utility * state.utility + rules.beta_utility * (delta * share)
    state.utility[acted] = moved[acted]
    return int(acted.sum())


def solo(state: BankState, rules: Rules, delta: np.float32) -> int:
    """U += beta*(Delta - U) for the slot of a solo episode, the one with I != 0; return how many.

    Only the bank reduced to one slot gives such an episode; whole rounds are `solo_round`.
    """
    acted = (state.used != 0) & (state.state != SlotState.CANDIDATE) & (state.influence != 0)
    moved = state.utility + rules.beta_utility * (delta - state.utility)
    state.utility[acted] = moved[acted]
    return int(acted.sum())


RULES: dict[str, Callable[[BankState, Rules, np.float32], int]] = {
    "solo": solo,
    "participation": participation,
    "original": original,
}


def end_episode(state: BankState, rules: Rules, rule: str, delta: float) -> None:
    """Move utilities by one paired Delta, then clear the influence.

    Nothing moves when |Delta| <= 1e-12, is not finite, or when no slot acted (counted).
    """
    with np.errstate(over="ignore"):
        signal = F32(delta)
    moved = 0
    if np.isfinite(signal) and abs(signal) > F32(LEAST_DELTA):
        moved = RULES[rule](state, rules, signal)
    state.count("utility_updates" if moved else "utility_skips")
    state.influence[:] = 0


def solo_round(state: BankState, rules: Rules, deltas: Floats) -> None:
    """Move the utility of each slot by a round of its own paired rollouts.

    Delta_slot is the mean over episodes; U += beta*(Delta_slot - U). A PROTECTED or ACTIVE slot
    whose 95 % interval (Student t over episodes) lies below zero becomes INACTIVE.

    Args:
        state: changed in place.
        rules: of the bank.
        deltas: float32[N, E], `paired_delta` of the bank reduced to each slot; a row with a NaN
            leaves its slot alone (counted).
    """
    means, upper = solo_interval(deltas)
    for slot in range(len(deltas)):
        mean = means[slot]
        if not (state.used[slot] and np.isfinite(mean) and abs(mean) > F32(LEAST_DELTA)):
            state.count("utility_skips", int(state.used[slot]))
            continue
        state.utility[slot] += rules.beta_utility * (mean - state.utility[slot])
        state.count("utility_updates")
        alive = state.state[slot] in (SlotState.PROTECTED, SlotState.ACTIVE)
        if alive and upper[slot] < 0:
            state.state[slot] = SlotState.INACTIVE


def solo_interval(deltas: Floats) -> tuple[Floats, npt.NDArray[np.float64]]:
    """Return mean float32[N] and upper end float64[N] of the 95 % intervals of float32[N, E].

    Fewer than 8 episodes: both NaN.
    """
    from scipy import stats

    rows, episodes = deltas.shape
    if episodes < LEAST_BATCH:
        return np.full(rows, np.nan, F32), np.full(rows, np.nan)
    means = ordered_sum(deltas) / F32(episodes)
    wide = deltas.astype(np.float64)
    error = wide.std(axis=1, ddof=1) / np.sqrt(episodes)
    return means, wide.mean(axis=1) + stats.t.ppf(0.975, episodes - 1) * error
