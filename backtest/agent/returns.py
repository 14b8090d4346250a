"""n-step returns (Sutton 1988) of an experience, in torch where its columns are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from backtest.agent.columns import tensor
from backtest.agent.experience import Experience
from backtest.market.layout import End


class Returns(NamedTuple):
    """n-step returns of each row of an experience, [T, N]; rows that are not alive hold zeros."""

    value: Tensor  # float32, sum of gamma^i * reward
    steps: Tensor  # int32, k, the steps summed: n, fewer near an end
    bootstrap: Tensor  # float32, gamma^k, 0 where the episode TERMINATED within


def n_step(
    experience: Experience, n: int, gamma: float, device: torch.device | str | None = None
) -> Returns:
    """Sum up to n rewards inside the episode; sums in float64.

    Args:
        experience: its columns may be on the host or on the device.
        n: steps summed.
        gamma: discount per step.
        device: where to compute; None: where the rewards are.
    """
    reward, end = tensor(experience.reward, device), tensor(experience.end, device)
    horizon = len(reward)
    value = torch.zeros_like(reward, dtype=torch.float64)
    steps = torch.zeros_like(reward, dtype=torch.int32)
    terminated = torch.zeros_like(reward, dtype=torch.bool)
    going = end != End.DEAD
    for i in range(min(n, horizon)):
        rows = horizon - i  # rows t with t + i < horizon
        going = going[:rows]
        # a reward of a dead row may be anything: selected, not multiplied
        value[:rows] += torch.where(going, gamma**i * reward[i:].double(), 0.0)
        steps[:rows] += going
        terminated[:rows] |= going & (end[i:] == End.TERMINATED)
        going = going & (end[i:] == End.RUNNING)
    power = torch.from_numpy(gamma ** np.arange(n + 1, dtype=np.int32)).to(reward.device)
    bootstrap = torch.where(terminated | (steps == 0), 0.0, power[steps.long()])
    return Returns(value.float(), steps, bootstrap.float())
