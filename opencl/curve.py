"""Equity curves that stay on the device: what daily figures need of them."""

from __future__ import annotations

from functools import cache

import numpy as np

from backtest.market.layout import Array
from opencl.buffers import DeviceArray, empty, upload
from opencl.devices import Device
from opencl.programs import Program
from opencl.simulate import GROUP


@cache
def _program(device: Device) -> Program:
    return Program(device, ["curve.cl"])


def session_figures(equity: DeviceArray, ends: Array, capital: float) -> tuple[Array, Array]:
    """Return equity at the end of every session, and the deepest drawdown of every curve.

    Args:
        equity: float32[steps, n], currency, n a multiple of `simulate.GROUP`.
        ends: int32[sessions], last step of each session, increasing; the last is steps - 1.
        capital: currency, the first peak.

    Returns:
        float32[sessions, n], currency, and float32[n], (peak - equity)/peak.

    Raises:
        ValueError: ends that do not cover the curves.
    """
    steps, n = equity.shape
    if not len(ends) or ends[-1] != steps - 1 or (np.diff(ends, prepend=-1) <= 0).any():
        raise ValueError(f"ends of sessions must increase and end with {steps - 1}: {ends}")
    device = equity.device
    last = upload(device, ends.astype(np.int32))
    closing = empty(device, (len(ends), n), np.float32)
    drawdown = empty(device, n, np.float32)
    _program(device).kernel("curve_sessions")(
        device.queue,
        (n,),
        (GROUP,),
        *(array.buffer for array in (equity, last, closing, drawdown)),
        np.float32(capital),
        np.int32(n),
        np.int32(len(ends)),
    )
    return closing.read(), drawdown.read()
