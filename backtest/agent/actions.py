"""The four branches of an action: where each lies among the 13 values, which are learned.

A branch that is not learned is fixed to `FIXED_ACTION` and takes no part in target, loss or
exploration.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from backtest.market.layout import BRANCHES, N_ACTIONS, N_BRANCHES, Direction, Order

# Value of each branch when it is not learned: hold, full size, market order, full change at once.
FIXED_ACTION = (int(Direction.HOLD), 2, int(Order.MARKET), 2)

_EDGES = np.cumsum([0, *BRANCHES.values()])
# Columns [start, stop) of each branch among the 13 action values.
SPANS = tuple((int(a), int(b)) for a, b in pairwise(_EDGES))


def learned(branches: Iterable[str]) -> tuple[int, ...]:
    """Return the indices of the named branches, in the order of `BRANCHES`."""
    names = set(branches)
    return tuple(i for i, name in enumerate(BRANCHES) if name in names)


def greedy(q: npt.NDArray[np.float32], branches: Iterable[str]) -> npt.NDArray[np.uint8]:
    """Return the best action of each row; ties go to the lowest index.

    Args:
        q: float32[B, 13] action values.
        branches: names of the learned branches; the others stay at `FIXED_ACTION`.

    Returns:
        uint8[B, 4], one value per branch.
    """
    if q.shape[1:] != (N_ACTIONS,):
        raise ValueError(f"q has shape {q.shape}; expected [B, {N_ACTIONS}]")
    action = np.empty((len(q), N_BRANCHES), np.uint8)
    action[:] = FIXED_ACTION
    for branch in learned(branches):
        start, stop = SPANS[branch]
        action[:, branch] = q[:, start:stop].argmax(1)
    return action
