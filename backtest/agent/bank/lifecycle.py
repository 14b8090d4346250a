"""AgeLifecycle: what time without use does to slots and candidates; a tick is one observation."""

from __future__ import annotations

import numpy as np

from backtest.agent.bank.codes import SlotState
from backtest.agent.bank.rules import Rules
from backtest.agent.bank.state import BankState


def tick(state: BankState, rules: Rules) -> None:
    """Advance ages, protections and candidates' clocks; each place by itself.

    A used slot: age 0 if retrieved since the last tick, else +1; protection -1 down to 0;
    PROTECTED without protection becomes ACTIVE at age 0; another ACTIVE slot of inactivity_age
    becomes INACTIVE. A candidate whose clock reaches candidate_ttl is freed.
    """
    used = state.used != 0
    state.age[used] = np.where(state.retrieved[used] != 0, 0, state.age[used] + 1)
    state.retrieved[:] = 0
    state.protection[:] = np.maximum(state.protection - 1, 0)
    grown = used & (state.state == SlotState.PROTECTED) & (state.protection == 0)
    idle = used & (state.state == SlotState.ACTIVE) & (state.age >= rules.inactivity_age)
    state.state[grown] = SlotState.ACTIVE
    state.age[grown] = 0
    state.state[idle] = SlotState.INACTIVE
    state.pool_clock[state.pool_used != 0] += 1
    expired = np.flatnonzero(state.pool_clock >= rules.candidate_ttl)
    for place in expired:
        free_candidate(state, int(place))
    state.count("expired", len(expired))
    state.count("ticks")


def free_candidate(state: BankState, place: int) -> None:
    """Make one place of the pool all zero."""
    for array in (
        state.pool_keys,
        state.pool_corrections,
        state.pool_directions,
        state.pool_scale,
        state.pool_used,
        state.pool_streak,
        state.pool_clock,
    ):
        array[place] = 0


def close_collection(state: BankState, rules: Rules) -> None:
    """End COLLECT: revive inactive slots that have observations, freeze norm_ref and h_ref.

    INACTIVE with observations >= min_confirmations becomes PROTECTED, age 0, protection =
    protection_age. norm_ref is the median scale of the PROTECTED and ACTIVE slots after that
    (even counts: half the sum of the two middle ones), 0 without any.
    """
    revived = (state.used != 0) & (state.state == SlotState.INACTIVE)
    revived &= state.observations >= rules.min_confirmations
    state.state[revived] = SlotState.PROTECTED
    state.age[revived] = 0
    state.protection[revived] = rules.protection_age
    scales = np.sort(state.scale[live(state)])
    middle = len(scales) // 2
    if len(scales) % 2:
        state.norm_ref[...] = scales[middle]
    elif len(scales):
        state.norm_ref[...] = (scales[middle - 1] + scales[middle]) * np.float32(0.5)
    else:
        state.norm_ref[...] = 0
    state.h_ref[...] = state.h_mean


def live(state: BankState) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return bool[N]: slots that are used and PROTECTED or ACTIVE."""
    protected, active = state.state == SlotState.PROTECTED, state.state == SlotState.ACTIVE
    result: np.ndarray[tuple[int], np.dtype[np.bool_]] = (state.used != 0) & (protected | active)
    return result
