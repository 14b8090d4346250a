"""What a rollout writes, and how many bytes that takes; known before anything is allocated."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod
from typing import Any

import numpy as np

from backtest.market.layout import N_PORTFOLIO, STEP

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


def size(wanted: Mapping[str, Form]) -> int:
    """Return the bytes of all outputs."""
    return sum(prod(shape) * dtype.itemsize for shape, dtype in wanted.values())
