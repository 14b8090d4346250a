"""Asks a device, once per process, whether the bf16 tensor-core kernels build and compute there."""

from __future__ import annotations

from functools import cache

import numpy as np

from backtest.errors import KernelError
from backtest.market.layout import Array
from opencl.buffers import empty, upload
from opencl.build import build, read
from opencl.devices import Device

# Products of bf16 are exact in float32, and so are 17 terms of these sizes in any order.
LEAST, MOST = -8, 9  # of the integers that are multiplied


@cache
def has_tensor_cores(device: Device) -> bool:
    """Return whether one product of tiles is NumPy's; later calls return the first answer.

    Only an NVIDIA compiler is asked: others may take its assembly for their own and abort.
    """
    import pyopencl as cl

    if not device.nvidia:
        return False
    try:
        return _measure(device)
    except (KernelError, cl.Error):  # older than sm_80, or a driver that takes no assembly
        return False


def _measure(device: Device) -> bool:
    import pyopencl as cl

    program = build(device, read(["tensor.cl", "tensor_probe.cl"])).program
    a, b, start = operands()
    c, moved = empty(device, (16, 8), np.float32), empty(device, (2, 32), np.float32)
    c.write(start)
    given = [upload(device, array).buffer for array in (a, b)]
    cl.Kernel(program, "tensor_probe")(device.queue, (32,), (32,), *given, c.buffer, moved.buffer)
    wanted, seen = a @ b + start, c.read()
    lane = np.arange(32)
    first = seen[lane // 4, lane % 4 * 2]
    return np.array_equal(seen, wanted) and np.array_equal(
        moved.read(), np.stack([first[31 - lane], first[lane ^ 5]])
    )


def operands() -> tuple[Array, Array, Array]:
    """Return a [16, 16], b [16, 8] and what is added to their product, float32 integers."""
    draw = np.random.default_rng(0)
    shapes = ((16, 16), (16, 8), (16, 8))
    a, b, c = (draw.integers(LEAST, MOST, shape).astype(np.float32) for shape in shapes)
    return a, b, c
