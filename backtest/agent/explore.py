"""Epsilon-greedy choice, independent per learned branch: the definition.

`opencl/kernels/explore.cl` is the twin. Whether branch i explores, and with which value, are draws
2i and 2i+1 of the episode's step, so a choice does not depend on what else is learned or run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from backtest import rng
from backtest.agent.actions import greedy, learned
from backtest.market.layout import BRANCHES

SIZES = tuple(BRANCHES.values())


def choose(
    q: npt.NDArray[np.float32],
    branches: Iterable[str],
    epsilon: float,
    key: npt.NDArray[Any],
    stage: int,
    round: int,
    episode: npt.NDArray[Any],
    t: int | npt.NDArray[Any],
) -> npt.NDArray[np.uint8]:
    """Return the action of each row, uint8[B, 4]; ties of the greedy value go to the lowest.

    Args:
        q: float32[B, 13] action values.
        branches: names of the learned branches; the others stay at their fixed value.
        epsilon: probability of a uniform value, per learned branch.
        key: uint32[2] or [B, 2], of `backtest.rng.key`.
        stage: a `Stage`.
        round: in [0, 2**16).
        episode: id within (fold, seed), integers [B].
        t: step within the episode, one for all or integers [B].
    """
    names = tuple(branches)
    action = greedy(q, names)
    if epsilon <= 0:
        return action
    for branch in learned(names):
        u = rng.uniform(key, stage, round, episode, t, 2 * branch)
        v = rng.uniform(key, stage, round, episode, t, 2 * branch + 1)
        value = (v * np.float32(SIZES[branch])).astype(np.uint8)
        action[:, branch] = np.where(u < np.float32(epsilon), value, action[:, branch])
    return action
