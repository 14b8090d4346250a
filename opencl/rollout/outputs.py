"""What a rollout writes, and how many bytes that takes; known before anything is allocated."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod
from typing import Any

import numpy as np

from backtest.market.layout import N_PORTFOLIO, STATE, STEP
from opencl.rollout.sizes import Sizes

Form = tuple[tuple[int, ...], np.dtype[Any]]
OPTIONAL = ("portfolio", "trace", "values", "slots")


def forms(steps: int, n: int, heads: int, asked: Collection[str]) -> dict[str, Form]:
    """Return shape and dtype of every output.

    Args:
        steps: of the longest episode.
        n: episodes.
        heads: actions that the network values.
        asked: those of `OPTIONAL` that are wanted.
    """
    every: dict[str, Form] = {
        "action": ((steps, n, 4), np.dtype(np.uint8)),
        "reward": ((steps, n), np.dtype(np.float32)),
        "equity": ((steps, n), np.dtype(np.float32)),
        "end": ((steps, n), np.dtype(np.uint8)),
        "portfolio": ((steps + 1, N_PORTFOLIO, n), np.dtype(np.float32)),
        "trace": ((steps, n), STEP.dtype),
        "values": ((steps, n, heads), np.dtype(np.float32)),
        "slots": ((steps, n, 2), np.dtype(np.int8)),
    }
    return {name: form for name, form in every.items() if name in asked or name not in OPTIONAL}


def carried(sizes: Sizes, n: int, tiles: int, cut: bool) -> int:
    """Return the bytes of what episodes hand on from step to step and from launch to launch.

    Args:
        sizes: of the kernels.
        n: episodes.
        tiles: of them, in the largest launch.
        cut: a walk is more than one launch.
    """
    kept = n * (STATE.dtype.itemsize + 1) if cut else 0
    history = tiles * sizes.past * sizes.tile * 4 if cut or sizes.group else 0
    return tiles * sizes.tile * 4 + kept + history


def size(wanted: Mapping[str, Form]) -> int:
    """Return the bytes of all outputs."""
    return sum(prod(shape) * dtype.itemsize for shape, dtype in wanted.values())
