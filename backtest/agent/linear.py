"""Dense layers; on a CPU their products by oneDNN, where torch was built with it.

Torch leaves float32 products on a CPU to MKL, which uses half the width of an AMD CPU's registers:
256 x 128 x 357 takes 237 us there and 115 us by oneDNN (one core of an EPYC 9005). Sums differ in
order, so results differ by rounding.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

LEAST = 2**22  # multiply-adds; smaller products lose more than they win


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x weight^T + bias, [B, out], of rows x [B, in], weight [out, in], bias [out]."""
    if not _by_onednn(x, weight):
        return functional.linear(x, weight, bias)
    if not torch.is_grad_enabled():  # half the cost of a small product
        return _product(x, weight, bias)
    result: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return result


def linear_columns(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return weight x + bias, [out, B], of columns x [in, B]."""
    if not _by_onednn(x, weight):
        return torch.addmm(bias[:, None], weight, x)
    return linear(weight, x.t(), None) + bias[:, None]  # rows are the weight's


class _Linear(torch.autograd.Function):
    """`linear`, once differentiable."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Keep both factors."""
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients in x, weight and bias."""
        x, weight = ctx.saved_tensors
        in_x, in_weight, in_bias = ctx.needs_input_grad
        return (
            _product(grad, weight.t()) if in_x else None,
            _product(grad.t(), x.t()) if in_weight else None,
            grad.sum(0) if in_bias else None,
        )


def _product(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return a b^T + bias of float32 matrices on the CPU."""
    result: Tensor = torch.ops.mkldnn._linear_pointwise(a, b, bias, "none", [], "")
    return result


def _by_onednn(x: Tensor, weight: Tensor) -> bool:
    """Tell whether oneDNN takes the product: float32 on the CPU, large enough to pay its start."""
    if x.device.type != "cpu" or x.dtype != torch.float32:
        return False
    return x.numel() * len(weight) >= LEAST and _has_onednn()


@cache
def _has_onednn() -> bool:
    """Try the operation once: torch promises neither its name nor its arguments."""
    a = torch.arange(6.0).view(2, 3)
    try:
        with torch.no_grad():
            return torch.equal(_product(a, a), a @ a.t())
    except (AttributeError, RuntimeError, TypeError):
        return False
