"""How the bypass of the direction forecast learns.

Expected values of C51 carry no gradient, so its weights follow a scalar temporal-difference error
on Q of direction, E[Z] fixed. Kernels of the same gradient: `aux_to_q_dir_bias_backward`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from backtest.agent.dueling import Bypass, forecast
from backtest.agent.kinds import BypassMode


def bypass_loss(
    alpha: Bypass,
    state: Tensor,
    action: Tensor,
    values: Tensor,
    goal: Tensor,
    weight: Tensor,
    mode: BypassMode = "detached",
) -> Tensor:
    """Return the mean over rows of weight * Huber(E[Z] + (W[a] - mean W) * s - goal), threshold 1.

    Args:
        alpha: the weights W.
        state: [B, ...], slot 121 is s.
        action: int64[B], the direction taken.
        values: [B], E[Z] of it; no gradient reaches it.
        goal: [B], expectation of the target.
        weight: [B], importance weights.
        mode: "both" lets the gradient reach s.
    """
    s = forecast(state)
    if mode != "both":
        s = s.detach()
    q = values.detach() + s * (alpha.weight - alpha.weight.mean())[action]
    huber = nn.functional.huber_loss(q, goal, reduction="none")
    return (weight * huber).mean()


@torch.no_grad()
def bypass_gradient(
    alpha: Bypass, state: Tensor, action: Tensor, values: Tensor, goal: Tensor, weight: Tensor
) -> Tensor:
    """Return the gradient of `bypass_loss` in W, [4], written out: it is wanted in every update."""
    s = forecast(state)
    centred = alpha.weight - alpha.weight.mean()
    error = values + s * centred[action] - goal
    slope = error.clamp(-1.0, 1.0) * weight * s / len(s)
    chosen = action[:, None] == torch.arange(len(centred), device=action.device)
    in_centred: Tensor = slope @ chosen.to(slope.dtype)
    return in_centred - in_centred.mean()


def taken(addition: Tensor, action: Tensor) -> Tensor:
    """Return what the bypass [B, 4] adds to the directions taken, int64[B]; detached, [B]."""
    return addition.detach().gather(1, action[:, None])[:, 0]


def moments(alpha: Bypass, optimiser: torch.optim.Optimizer) -> Tensor:
    """Return weights and Adam's first and second moments, [3, 4]; 0 before the first update."""
    state = optimiser.state.get(alpha.weight, {})
    zero = torch.zeros_like(alpha.weight)
    parts = [alpha.weight, state.get("exp_avg", zero), state.get("exp_avg_sq", zero)]
    return torch.stack([part.detach() for part in parts])
