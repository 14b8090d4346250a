"""Tries a way of exchange with real numbers before anyone relies on it."""

from __future__ import annotations

from typing import Any

import numpy as np

from backtest.agent.columns import host
from backtest.errors import DeviceError
from opencl.buffers import Array
from opencl.exchange.interface import Exchange

WORDS = 3 * 2**20 + 1  # int32; more than one chunk of every way, and no round number


def check(exchange: Exchange) -> None:
    """Move a pattern to the learner, and where memory is shared another one back.

    Raises:
        DeviceError: other numbers arrive.
    """
    queue = exchange.device.queue
    there, back = _pattern(0x9E3779B1), _pattern(0x85EBCA77)
    array = exchange.empty(there.shape, there.dtype)
    exchange.begin(queue, [array])
    array.write(there)
    seen = exchange.finish(queue, {"pattern": array})["pattern"]
    _compare(exchange, "the learner", host(seen), there)
    if not exchange.shared:
        return
    _put(seen, back)
    del seen, array
    # the block comes back from the pool with what the learner left in it
    array = exchange.empty(there.shape, there.dtype)
    exchange.begin(queue, [array])
    found = array.read()
    exchange.finish(queue, {"pattern": array})
    _compare(exchange, "OpenCL", found, back)


def _pattern(factor: int) -> Array:
    return (np.arange(WORDS, dtype=np.uint32) * np.uint32(factor)).view(np.int32)


def _put(values: Any, array: Array) -> None:
    if isinstance(values, np.ndarray):
        values[:] = array
    else:
        import torch

        values.copy_(torch.from_numpy(array))


def _compare(exchange: Exchange, who: str, seen: Array, wanted: Array) -> None:
    if not np.array_equal(seen, wanted):
        wrong = int((seen != wanted).sum()) if seen.shape == wanted.shape else seen.size
        raise DeviceError(f"{who} sees {wrong} of {wanted.size} words that were not written")
