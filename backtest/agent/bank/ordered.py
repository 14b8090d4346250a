"""The one order in which a bank sums over dimensions, so that kernels find the same bits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from backtest.agent.bank.codes import LEAST_SQUARE, SUM_LANES

Floats = npt.NDArray[np.float32]

LEAST = np.float32(LEAST_SQUARE)
NO_COSINE = np.float32(-2)  # below every threshold


def ordered_sum(x: Floats) -> Floats:
    """Return the float32 sums [...] over the last axis of x float32[..., D].

    D is padded with zeros to a multiple of 64. 64 lanes start at +0; lane i adds elements i,
    i + 64, ... in that order; lanes are then added as a tree, lane i + lane i + width, for width
    32, 16, 8, 4, 2, 1.
    """
    *rows, width = x.shape
    if width % SUM_LANES:
        x = np.concatenate([x, np.zeros((*rows, -width % SUM_LANES), np.float32)], axis=-1)
    # a sum over any axis but the fastest in memory is taken in order
    parts = np.ascontiguousarray(x).reshape(*rows, x.shape[-1] // SUM_LANES, SUM_LANES)
    lanes: Floats = np.add.reduce(parts, axis=-2, initial=np.float32(0))
    half = SUM_LANES // 2
    while half:
        lanes = lanes[..., :half] + lanes[..., half : 2 * half]
        half //= 2
    return lanes[..., 0]


def square(x: Floats) -> Floats:
    """Return the squared norms float32[...] of x float32[..., D]; inf or NaN when not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return ordered_sum(x * x)


def norm(x: Floats) -> Floats:
    """Return the norms float32[...] of x float32[..., D]."""
    return np.sqrt(square(x))


def cosines(rows: Floats, x: Floats, xx: Floats) -> Floats:
    """Return the cosine float32[n] of each row [n, D] with x float32[D], whose square is xx.

    dot/(sqrt(a)*sqrt(b)) of ordered sums; -2 where a squared norm is below 1e-12.
    """
    a, b = xx, square(rows)
    known = (a >= LEAST) & (b >= LEAST)
    bottom = np.where(known, np.sqrt(a) * np.sqrt(b), np.float32(1))
    return np.where(known, ordered_sum(rows * x) / bottom, NO_COSINE)
