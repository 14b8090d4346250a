"""Tokens and the attention of few queries to them, each scenario by itself, forward and backward.

The batch is the last axis, so all products are element-wise along it; a library's matrix products
spend most of their time on starting when a matrix holds 3 by 6 numbers. Gradients are written out:
no array is larger than the tokens, which then stay in a CPU's cache.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


class LayerNorm(torch.autograd.Function):
    """Return the layer norm (Ba 2016) over L of x [S, H, L, B], once differentiable.

    Arguments: x; weight [L]; shift [H, L]; eps. The variance is the biased one.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, shift: Tensor, eps: float) -> Tensor:
        """Normalise, scale, shift."""
        y = x - x.mean(2, keepdim=True)
        scale = (y * y).mean(2, keepdim=True).add_(eps).rsqrt_()
        y *= scale
        ctx.save_for_backward(y, scale, weight)
        return torch.addcmul(shift[:, :, None], y, weight[:, None])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """Return the gradients in x, weight and shift."""
        y, scale, weight = ctx.saved_tensors
        product = grad * y
        in_weight = product.sum((0, 1, 3))
        product *= weight[:, None]
        in_x = grad * weight[:, None]
        in_x -= in_x.mean(2, keepdim=True)
        in_x.addcmul_(y, product.mean(2, keepdim=True), value=-1).mul_(scale)
        return in_x, in_weight, grad.sum((0, 3)), None


class Attention(torch.autograd.Function):
    """Return softmax(q . tokens / sqrt(L)) tokens, once differentiable.

    Arguments: query [G, S, L, B]; tokens [S, H, L, B], keys and values; k, the tokens that a
    query attends to (0 = all). Result [G, S, L, B].
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, tokens: Tensor, k: int) -> Tensor:
        """Attend, one group of queries after another."""
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
    product = torch.empty_like(tokens)
    return torch.stack([torch.mul(q[:, None], tokens, out=product).sum(2) for q in query])


def _mixtures(share: Tensor, tokens: Tensor) -> Tensor:
    """Return [G, S, L, B], the sums over H of tokens times shares [G, S, H, B]."""
    product = torch.empty_like(tokens)
    return torch.stack([torch.mul(p[:, :, None], tokens, out=product).sum(1) for p in share])


def best(score: Tensor, k: int) -> Tensor:
    """Return scores [G, S, H, B] with all but the k best of H at -inf; ties keep the first."""
    if k in (0, score.shape[2]):
        return score
    order = score.sort(dim=2, descending=True, stable=True).indices
    return score.scatter(2, order[:, :, k:], -torch.inf)
