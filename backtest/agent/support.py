"""The range of the return distribution: measured once, widened at most once.

v_max = -v_min = max(P99.5 of |n-step return|, 4*sd(reward)/sqrt(1 - gamma^2)).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from backtest.agent.columns import host
from backtest.agent.experience import Experience
from backtest.agent.returns import n_step
from backtest.agent.weights import Floats, State, support
from backtest.errors import ConfigError, DataError

# The differential Sharpe ratio is 0 before step 50: earlier steps measure a range 3x too narrow.
WARM_STEPS = 50
MIN_STEPS = 200
EDGE_LIMIT = 0.05  # target mass on the two edge atoms
WIDENING = 2.0
OUTSIDE = 1.0  # nats per new atom by which logits fall beyond the old range


def measure_range(experience: Experience, n: int, gamma: float) -> float:
    """Return v_max, reward units, from steps t > 50 of the first experience.

    Raises:
        ConfigError: episodes are shorter than 200 steps; names the keys to set.
        DataError: no step was left to measure, or every reward is 0.
    """
    horizon = len(experience.reward)
    if horizon < MIN_STEPS:
        raise ConfigError(
            f"[learner.episode_steps] {horizon} steps are too few to measure the range of returns; "
            f"use at least {MIN_STEPS}, or set learner.v_max"
        )
    late = host(experience.alive).copy()
    late[: WARM_STEPS + 1] = False
    rewards = host(experience.reward)[late].astype(np.float64)
    if not len(rewards):
        raise DataError(
            f"first experience: no episode outlived step {WARM_STEPS}; check costs, position size "
            "and market.ruin_level, or set learner.v_max"
        )
    returns = np.abs(host(n_step(experience, n, gamma).value)[late])
    v_max = max(
        float(np.quantile(returns, 0.995)), 4 * float(rewards.std()) / math.sqrt(1 - gamma**2)
    )
    if not v_max > 0:
        raise DataError(
            "first experience: every reward is 0, there is nothing to learn; check the reward "
            "weights and the bars"
        )
    return v_max


def widen(state: State, factor: float = WIDENING) -> dict[str, Floats]:
    """Return parameters for a support `factor` times as wide, Q nearly unchanged.

    Logits are linear in the head's weights, so reading the old logits at the new atoms
    (interpolated) is an interpolation of weight rows; beyond the old range they fall off from the
    edge atom's.

    Args:
        state: the network's parameters by name.
        factor: > 1.
    """
    atoms = len(state["value.bias"])
    place = support(factor, atoms).astype(np.float64)  # new atoms in units of the old v_max
    index = (np.clip(place, -1, 1) + 1) / 2 * (atoms - 1)
    low = np.minimum(index.astype(np.int64), atoms - 2)
    share = index - low
    beyond = np.maximum(np.abs(place) - 1, 0) / (2 * factor / (atoms - 1))

    def read(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Interpolate the atoms, axis 1 of [heads, atoms, inputs]."""
        return rows[:, low] * (1 - share)[:, None] + rows[:, low + 1] * share[:, None]

    wide = dict(state)
    for name in ("value.weight", "value.bias", "advantage.weight", "advantage.bias"):
        rows = state[name].reshape(-1, atoms, *(state[name].shape[1:] or (1,)))
        wide[name] = read(rows).reshape(state[name].shape).astype(np.float32)
    wide["value.bias"] = (wide["value.bias"] - OUTSIDE * beyond).astype(np.float32)
    return wide
