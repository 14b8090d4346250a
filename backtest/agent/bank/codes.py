"""Codes and fixed numbers of a bank: the kernels' copies are rendered from these.

What a person may set is in `backtest.agent_sections.SkillBank`.
"""

from __future__ import annotations

from enum import IntEnum


class SlotState(IntEnum):
    """Where a slot stands in its life."""

    FREE = 0
    CANDIDATE = 1  # no slot of a bank is one: candidates wait in the pool
    PROTECTED = 2
    ACTIVE = 3
    INACTIVE = 4


class Decision(IntEnum):
    """What one observation did to a bank."""

    NONE = 0
    MATCH = 1
    SEED = 2
    CANDIDATE = 3
    RESET = 4
    FREE = 5
    EVICT = 6


SUM_LANES = 64  # accumulators of an ordered sum
LEAST_SQUARE = 1e-12  # a smaller square of a norm counts as zero
CLOSE_SCORES = 0.02  # the two best scores this close are one score
LEAST_SHARE = 1e-3  # of norm_ema; a smaller |g| teaches nothing
NORM_RATE = 0.01  # of norm_ema
CELL_RATE = 0.05  # of a cell's key
MASS_KEEP = 0.95
MASS_GAIN = 0.05
AGE_WEIGHT = 1e-4  # of an age when an inactive slot is chosen for eviction
AGE_LIMIT = 0.5  # the most that age can add
LEAST_DELTA = 1e-12  # a smaller |Delta| teaches no utility
SCALE_LIMIT = 2.0  # the most that scale/norm_ref may be
