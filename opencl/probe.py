"""Asks a device, once per process, whether its structs and its arithmetic are the host's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from backtest.errors import KernelError
from opencl import layout
from opencl.build import build, read

if TYPE_CHECKING:
    from opencl.devices import Device

# Rows of the kernel `exactness`, in its order.
PROPERTIES = ("division", "square root", "uncontracted multiply-add", "subnormals")
PAIRS = 4096


@dataclass(frozen=True)
class Probe:
    """What a device answered.

    Attributes:
        inexact: the PROPERTIES in which its float32 differs from NumPy's; empty is bit-equal.
    """

    inexact: tuple[str, ...]


@cache
def probe(device: Device) -> Probe:
    """Check layout and measure arithmetic; later calls return the first answer.

    Raises:
        KernelError: the device does not build or run the probe, or lays a struct out differently.
        DeviceError: the device cannot be opened.
    """
    import pyopencl as cl

    try:
        return _measure(device)
    except cl.Error as error:
        raise KernelError(
            f"{device.name} ({device.platform}, driver {device.driver}) builds the probe but does "
            f"not run it: {error}; update its driver or use another device"
        ) from error


def _measure(device: Device) -> Probe:
    import pyopencl as cl

    source = read(["exactness.cl"]) + layout.probe_source()
    program = build(device, source, layout.preamble()).program
    queue, flags = device.queue, cl.mem_flags

    def run(name: str, n: int, out: npt.NDArray[Any], *inputs: Any) -> npt.NDArray[Any]:
        buffer = cl.Buffer(device.context, flags.WRITE_ONLY, out.nbytes)
        cl.Kernel(program, name)(queue, (n,), None, *inputs[:2], buffer, *inputs[2:])
        cl.enqueue_copy(queue, out, buffer)
        return out

    offsets = run("layout_probe", 1, np.zeros(len(layout.expected()), np.uint32))
    layout.check(offsets.tolist(), f"{device.name} ({device.platform})")

    x, y, wanted = _arithmetic()
    inputs = [
        cl.Buffer(device.context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=a) for a in (x, y)
    ]
    seen = run("exactness", PAIRS, np.empty_like(wanted), *inputs, np.int32(PAIRS))
    equal = (seen == wanted).all(axis=1)
    return Probe(tuple(name for name, same in zip(PROPERTIES, equal, strict=True) if not same))


def _arithmetic() -> tuple[npt.NDArray[np.float32], ...]:
    """Return x, y float32[n] and what NumPy makes of them, float32[4, n]."""
    random = np.random.default_rng(0)
    x, y = np.exp2(random.uniform(-20, 20, (2, PAIRS))).astype(np.float32)
    x = np.where(np.arange(PAIRS) % 2, x, np.float32(1) / y)  # x*y near 1: where fusing shows most
    tiny = np.float32(2**-126)
    return x, y, np.stack([x / y, np.sqrt(x), x * y - x, x * tiny])
