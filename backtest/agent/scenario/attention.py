"""Tokens and the attention of few queries to them, each scenario by itself, forward and backward.

The batch is the last axis, so all products are element-wise along it; a library's matrix products
spend most of their time on starting when a matrix holds 3 by 6 numbers. Gradients are written out,
in few and large operations: at 64 rows a CPU spends half an update on starting them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


class Tokens(torch.autograd.Function):
    """Return keys and values: the layer norm (Ba 2016) over L of step + bias + log U * weight.

    Once differentiable; log U takes no gradient. Arguments: step [S, H, L, B]; log U [S, H, 1, B];
    weight and bias [L] of the uncertainty; scale [L] and shift [H, L] of the norm; eps. The
    variance is the biased one.
    """

    @staticmethod
    def forward(
        ctx: Any,
        step: Tensor,
        log_u: Tensor,
        weight: Tensor,
        bias: Tensor,
        scale: Tensor,
        shift: Tensor,
        eps: float,
    ) -> Tensor:
        """Add, normalise, scale, shift; in place on two arrays."""
        x = torch.add(step, bias[:, None]).addcmul_(log_u, weight[:, None])
        x -= x.mean(2, keepdim=True)
        out = torch.mul(x, x)
        deviation = out.mean(2, keepdim=True).add_(eps).rsqrt_()
        x *= deviation
        ctx.save_for_backward(x, deviation, log_u, scale)
        return torch.mul(x, scale[:, None], out=out).add_(shift[:, :, None])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients in step, weight, bias, scale and shift."""
        x, deviation, log_u, scale = ctx.saved_tensors
        product = grad * x
        in_scale = product.sum((0, 1, 3))
        product *= scale[:, None]
        in_step = grad * scale[:, None]
        in_step -= in_step.mean(2, keepdim=True)
        in_step.addcmul_(x, product.mean(2, keepdim=True), value=-1).mul_(deviation)
        in_weight = torch.mul(in_step, log_u, out=product).sum((0, 1, 3))
        in_bias, in_shift = in_step.sum((0, 1, 3)), grad.sum((0, 3))
        return in_step, None, in_weight, in_bias, in_scale, in_shift, None


class Attention(torch.autograd.Function):
    """Return softmax(q . tokens / sqrt(L)) tokens, once differentiable.

    Arguments: query [G, S, L, B]; tokens [S, H, L, B], keys and values; k, the tokens that a
    query attends to (0 = all). Result [G, S, L, B].
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, tokens: Tensor, k: int) -> Tensor:
        """Attend."""
        query = query / math.sqrt(query.shape[2])
        score = _products(query, tokens)
        share = best(score, k).softmax(2)
        ctx.save_for_backward(query, tokens, share)
        return _mixtures(share, tokens)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        """Return the gradients in query and tokens."""
        query, tokens, share = ctx.saved_tensors
        in_share = _products(grad, tokens)
        in_score = share * (in_share - (share * in_share).sum(2, keepdim=True))
        in_query = _mixtures(in_score, tokens).div_(math.sqrt(query.shape[2]))
        in_tokens = torch.zeros_like(tokens)
        for p, g, s, q in zip(share, grad, in_score, query, strict=True):
            in_tokens.addcmul_(p[:, :, None], g[:, None]).addcmul_(s[:, :, None], q[:, None])
        return in_query, in_tokens, None


def _products(query: Tensor, tokens: Tensor) -> Tensor:
    """Return [G, S, H, B], the products of queries [G, S, L, B] and tokens over L."""
    return (query[:, :, None] * tokens).sum(3)


def _mixtures(share: Tensor, tokens: Tensor) -> Tensor:
    """Return [G, S, L, B], the sums over H of tokens times shares [G, S, H, B]."""
    return (share[:, :, :, None] * tokens).sum(2)


def best(score: Tensor, k: int) -> Tensor:
    """Return scores [G, S, H, B] with all but the k best of H at -inf; ties keep the first."""
    if k in (0, score.shape[2]):
        return score
    order = score.sort(dim=2, descending=True, stable=True).indices
    return score.scatter(2, order[:, :, k:], -torch.inf)
