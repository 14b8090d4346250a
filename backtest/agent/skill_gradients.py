"""Pseudo-residuals g = -dL/dh of one sample, at hidden states as they are or corrected.

Skills are learned from them and judged by them. Nothing here touches a parameter's gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from backtest.agent.bank.snapshot import Floats
from backtest.agent.dueling import expected
from backtest.agent.loss import branch_loss
from backtest.agent.scenario.network import ScenarioNetwork
from backtest.agent.weights import N_DIRECTIONS

Objective = Callable[[Tensor], Tensor]  # logits [B, A, atoms] -> mean loss over the B rows
Head = tuple[Tensor, Tensor]


class Shift(torch.autograd.Function):
    """`hit ? h + d : h`; the Jacobian is the identity and d takes no gradient."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, d: Tensor, hit: Tensor) -> Tensor:
        """Return h [B, D] with d [B, D] added where hit bool[B, 1]."""
        return torch.where(hit, h + d, h)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Pass the gradient on as it is."""
        return gradients[0], None, None


def watched(h: Tensor) -> Tensor:
    """Return h, which keeps its gradient at the next backward."""
    if not h.requires_grad:
        h = h.detach().requires_grad_()
    h.retain_grad()
    return h


def kept(h: Tensor) -> Tensor:
    """Return the gradient that a watched tensor kept."""
    assert h.grad is not None
    return h.grad


def residuals(
    network: ScenarioNetwork,
    state: Tensor,
    head: Head,
    loss: Objective,
    added: Mapping[str, Tensor] | None = None,
) -> dict[str, Floats]:
    """Return g of both hidden states, float32[B, Dt] and [B, Ds], by bank name.

    The batch mean is undone here, exactly once: g = -B * d(mean loss)/dh.

    Args:
        network: its parameters and their gradients stay as they are.
        state: [B, 128 + C], or with a stack [B, stack, 128 + C].
        head: of the network, for the branches of the loss.
        loss: must be a mean over rows of losses that do not depend on one another.
        added: corrections [B, D] of the task or step context; the gradient is taken there.
    """
    with torch.enable_grad():
        hidden = network.contexts(state)
        task, step = (h.detach().requires_grad_() for h in hidden)
        moved = {"task": task, "step": step}
        for name, d in (added or {}).items():
            moved[name] = moved[name] + d
        frozen = (head[0].detach(), head[1].detach())
        mean = loss(network.logits_from(moved["task"], moved["step"], state, frozen))
        gradients = torch.autograd.grad(mean, (task, step))
    names = zip(("task", "step"), gradients, strict=True)
    return {name: undo_mean(gradient) for name, gradient in names}


def undo_mean(gradient: Tensor) -> Floats:
    """Return g float32[B, D] on the host from d(mean loss)/dh [B, D]."""
    result: Floats = (-len(gradient) * gradient).detach().cpu().numpy()
    return result


def td_objective(
    action: Tensor, target: Tensor, support: Tensor, branches: Sequence[int]
) -> Objective:
    """Return the C51 loss with uniform weights against a fixed target (`residual = "td"`).

    Args:
        action: int64[B, L], what was done in each of `branches`.
        target: [B, atoms], of `backtest.agent.loss.mixture_target`.
        support: [atoms], reward units.
        branches: the branches of the logits.
    """
    weight = torch.ones(len(action), device=target.device)
    fixed = target.detach()

    def loss(logits: Tensor) -> Tensor:
        return branch_loss(logits, action, fixed, weight, support, branches).loss

    return loss


def advantage_objective(
    direction: Tensor, returns: Tensor, support: Tensor, bypass: Tensor | None = None
) -> Objective:
    """Return the loss whose g is (R5 - mean_a Q_dir) * d(Q_dir[a] - mean_a Q_dir)/dh.

    `residual = "advantage"`; the bracket is detached. The first branch of the logits must be
    direction.

    Args:
        direction: int64[B], the direction taken.
        returns: [B], discounted reward of five steps, no bootstrap, reward units.
        support: [atoms], reward units.
        bypass: [B, 4], what the bypass adds to the directions' values; None for nothing.
    """

    def loss(logits: Tensor) -> Tensor:
        q = expected(logits[:, :N_DIRECTIONS], support)
        if bypass is not None:
            q = q + bypass.detach()
        mean = q.mean(1)
        bracket = (returns - mean).detach()
        return -(bracket * (q.gather(1, direction[:, None])[:, 0] - mean)).mean()

    return loss
