"""A bank as a snapshot: what may be retrieved, how it ranks, and what it adds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from backtest.agent.bank.codes import SCALE_LIMIT
from backtest.agent.bank.lifecycle import live
from backtest.agent.bank.ordered import LEAST, norm, ordered_sum, square
from backtest.agent.bank.snapshot import Snapshot
from backtest.agent.bank.state import BankState, Floats
from backtest.agent_sections import SkillBank

F32 = np.float32


def freeze(
    state: BankState, section: SkillBank, alpha: float, *, explore: bool, only: int | None
) -> Snapshot:
    """Return the bank as retrieval sees it.

    Args:
        state: read, never changed.
        section: parameters of the bank.
        alpha: strength of the corrections.
        explore: add exploration_c*sqrt(ln(1 + all uses)/(1 + uses)) to the scores.
        only: make every other slot ineligible.
    """
    squares = square(state.keys)
    eligible = live(state) & (squares >= LEAST)
    for array in (squares, square(state.directions), square(state.corrections), state.scale):
        eligible &= np.isfinite(array)
    if section.utility_aware:
        eligible &= state.utility >= F32(section.min_utility)
    if only is not None:
        eligible &= np.arange(len(eligible)) == only
    bonus = F32(section.utility_weight) * np.clip(state.utility, F32(-1), F32(1))
    if explore:
        uses = state.uses.astype(np.float64)
        urge = section.exploration_c * np.sqrt(np.log1p(uses.sum()) / (1 + uses))
        bonus = bonus + urge.astype(F32)
    return Snapshot(
        center=state.center.copy(),
        keys=state.keys.copy(),
        norms=np.sqrt(squares),
        eligible=eligible.astype(np.uint8),
        bonus=bonus,
        disagree=disagreement(state.directions),
        shift=shifts(state, section, F32(alpha)),
        threshold=F32(state.threshold),
    )


def disagreement(directions: Floats) -> npt.NDArray[np.uint8]:
    """Return uint8[N, N], 1 where two directions float32[N, D] have a negative cosine."""
    result = np.zeros((len(directions),) * 2, np.uint8)
    for slot, direction in enumerate(directions):
        result[slot] = ordered_sum(directions * direction) < 0
    return result


def shifts(state: BankState, section: SkillBank, alpha: np.float32) -> Floats:
    """Return float32[N, D], what a hit on each slot adds to the hidden state.

    raw: (alpha*scale)*direction. relative: ((alpha*min(scale/norm_ref, 2))*h_ref)*direction, zero
    before close_collection. In the full representation the vector is `corrections`: its norm and
    its unit vector stand for scale and direction.
    """
    full, raw = section.representation == "full", section.alpha_unit == "raw"
    result: Floats
    if full and raw:
        result = alpha * state.corrections
        return result
    size, unit = state.scale, state.directions
    if full:
        size = norm(state.corrections)
        unit = (state.corrections / np.where(size > 0, size, F32(1))[:, None]).astype(F32)
    if raw:
        result = (alpha * size)[:, None] * unit
    elif state.norm_ref > 0:
        strength = (alpha * np.minimum(size / state.norm_ref, F32(SCALE_LIMIT))) * state.h_ref
        result = strength[:, None] * unit
    else:
        result = np.zeros_like(unit)
    return result
