"""The way of the direction forecast around the network, in NumPy: Q_dir[b, a] += W[a]*s[b].

The definition of `opencl/kernels/aux_bypass.cl`: same names, same order of operations, equal bits.
C51 gives expected values no gradient, so W learns from a scalar temporal difference of Q_dir.
"""

from __future__ import annotations

import numpy as np

from backtest.agent.bank.ordered import ordered_sum
from backtest.agent.weights import Floats

LANES = 64  # of a sum; see `ordered_sum`
BLOCK_ROWS = 1024  # rows that one work-group sums


def aux_to_q_dir_bias(q: Floats, w: Floats, s: Floats) -> Floats:
    """Return the direction values with the forecast's share, float32[B, 4].

    Args:
        q: float32[B, 4], expected values of the network.
        w: float32[4], centred over the actions (`backtest.agent.weights.centred`).
        s: float32[B], slot 121 of the network's input.
    """
    return q + w * s[:, None]


def aux_to_q_dir_backward(
    dq: Floats, w: Floats, s: Floats, scale: float, ds: Floats | None = None
) -> tuple[Floats, Floats | None]:
    """Return the gradients of the loss in W and, where asked for, in the forecast.

    dW[a] = scale * sum_b s[b]*dq[b, a], less its mean over a because only the centred W acts.
    Blocks of 1,024 rows are summed first, then the blocks, both in the order of `ordered_sum`.

    Args:
        dq: float32[B, 4], gradient of each row's own loss in its Q_dir.
        w: float32[4], centred.
        s: float32[B].
        scale: of the loss: 1/B for a mean over rows.
        ds: float32[B], gradient in s from elsewhere, to be added to; None: s is detached.

    Returns:
        dW float32[4], and ds + scale * sum_a w[a]*dq[b, a] float32[B] or None.
    """
    scale_ = np.float32(scale)
    blocks = -(-len(dq) // BLOCK_ROWS)
    terms = np.zeros((blocks * BLOCK_ROWS, dq.shape[1]), np.float32)
    terms[: len(dq)] = dq * s[:, None]
    partial = ordered_sum(terms.reshape(blocks, BLOCK_ROWS, -1).swapaxes(1, 2))
    total = ordered_sum(partial.T) * scale_
    dw = total - _sum4(total) * np.float32(0.25)
    if ds is None:
        return dw, None
    return dw, ds + scale_ * _sum4(w * dq)


def _sum4(x: Floats) -> Floats:
    """Return (x0 + x1) + (x2 + x3) of the last axis."""
    total: Floats = (x[..., 0] + x[..., 1]) + (x[..., 2] + x[..., 3])
    return total
