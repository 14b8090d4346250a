"""The double, branching C51 loss as functions of logits.

Target: the mean over branches of their projected target distributions, one mixture for all of
them; loss: the mean over branches of the cross-entropy with it. With one branch this is plain C51.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from backtest.agent.network import expected, greedy, local_spans
from backtest.agent.projection import project


def pick(logits: Tensor, action: Tensor, branches: Sequence[int]) -> Tensor:
    """Return the logits [B, L, atoms] of one action per branch.

    Args:
        logits: [B, A, atoms], the actions of `branches`.
        action: int64[B, L], the value within each branch.
        branches: the branches in logits.
    """
    row = action + first_rows(len(action), logits.shape[1], tuple(branches), action.device)
    # whole rows by index_select: ten times faster than gather on a CPU, exact on every device
    picked = logits.flatten(0, 1).index_select(0, row.view(-1))
    return picked.view(*action.shape, -1)


@cache
@torch.inference_mode(False)
def first_rows(rows: int, actions: int, branches: tuple[int, ...], device: torch.device) -> Tensor:
    """Return [B, L], where each branch's first action lies among B*A rows of logits."""
    starts = torch.tensor([a for a, _ in local_spans(branches)])
    return (torch.arange(rows)[:, None] * actions + starts).to(device)


def mixture_target(
    online: Tensor,
    critic: Tensor,
    returns: Tensor,
    bootstrap: Tensor,
    support: Tensor,
    branches: Sequence[int],
) -> Tensor:
    """Return the target distribution [B, atoms] shared by all branches.

    The online network selects each branch's action, the critic evaluates it (van Hasselt 2016).
    All branches share reward and discount and the projection is linear in the mass, so the
    mixture is projected once.

    Args:
        online: [B, A, atoms], logits of the next state.
        critic: [B, A, atoms], the target network's.
        returns: [B], n-step returns.
        bootstrap: [B], gamma^k, 0 after TERMINATED.
        support: [atoms].
        branches: the branches in both.
    """
    action = greedy(expected(online, support), branches)
    mixture = pick(critic, action, branches).softmax(-1).mean(1)
    places = returns[:, None] + bootstrap[:, None] * support
    return project(places, mixture, support)


class Loss(NamedTuple):
    """Result of `branch_loss`."""

    loss: Tensor  # [], mean over rows of weight * mean over branches of the cross-entropy
    error: Tensor  # [B], sum over branches of |E[target] - Q|, detached
    q: Tensor  # [], mean Q of the actions taken, detached


def branch_loss(
    logits: Tensor,
    action: Tensor,
    target: Tensor,
    weight: Tensor,
    support: Tensor,
    branches: Sequence[int],
) -> Loss:
    """Return loss, priority error and mean Q of the actions taken.

    Args:
        logits: [B, A, atoms], the actions of `branches`.
        action: int64[B, L], what was done in each of them.
        target: [B, atoms].
        weight: [B], importance weights.
        support: [atoms].
        branches: the branches in logits.
    """
    log_p = pick(logits, action, branches).log_softmax(-1)
    cross_entropy = -(target[:, None] * log_p).sum(-1)  # [B, L]
    loss = (weight * cross_entropy.mean(1)).mean()
    with torch.no_grad():
        q = log_p.exp() @ support
        error = (target @ support)[:, None] - q
    return Loss(loss, error.abs().sum(1), q.mean())
