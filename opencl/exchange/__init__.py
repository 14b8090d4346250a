"""How what kernels write reaches the learner: by sharing memory where that works, else by copies.

| OpenCL device | learner | way, the first that passes its trial |
|---|---|---|
| GPU of NVIDIA | the same GPU by torch.cuda | shared CUDA memory, pinned, copies |
| any GPU | the CPU | pinned, copies |
| CPU | the CPU | host memory, copies |

The choice is a trial, once per process and device: a pattern goes to the learner and back, and
must arrive. What a driver says about its extensions counts for nothing.

Weights go the other way, by `opencl.buffers.upload`: 0.3 to 3 MB a round take 0.1 to 0.4 ms on an
H200, beside a round of seconds, so they are not shared.
"""

from __future__ import annotations

from functools import cache

from backtest.errors import DeviceError
from opencl.devices import Device
from opencl.exchange.copies import Copies
from opencl.exchange.cuda_memory import CudaMemory
from opencl.exchange.host import HostMemory
from opencl.exchange.interface import Exchange
from opencl.exchange.learner import torch_device
from opencl.exchange.pattern import check
from opencl.exchange.pinned import Pinned

__all__ = [
    "Copies",
    "CudaMemory",
    "Exchange",
    "HostMemory",
    "Pinned",
    "exchange",
    "torch_device",
    "way_to_torch",
]


@cache
def exchange(device: Device, learner: str = "cpu") -> Exchange:
    """Return the best way to a learner that works; the same object within one process.

    Args:
        device: whose kernels write.
        learner: torch device that reads, of `torch_device`, or "cpu".
    """
    import pyopencl as cl

    reasons = []
    for way in ways(device, learner):
        try:
            found = way(device, learner)
            check(found)
        # a driver without a function, or one that lies about it: there is a slower way
        except (DeviceError, cl.Error, OSError, AttributeError, RuntimeError) as error:
            reasons.append(f"no {way.way}: {str(error).partition(chr(10))[0]}")
            continue
        found.reason = "; ".join(reasons) or None
        return found
    found = Copies(device, learner)
    found.reason = "; ".join(reasons)
    return found


def way_to_torch(device: Device) -> dict[str, str | None]:
    """Return where torch trains beside a device and how experience gets there, for a table.

    Keys: learner (torch device), way, reason (why not a faster way, or None).
    """
    found = exchange(device, torch_device(device))
    return {"learner": found.learner, "way": found.way, "reason": found.reason}


def ways(device: Device, learner: str) -> tuple[type[Exchange], ...]:
    """Return the ways to try before plain copies, the fastest first."""
    if learner != "cpu":
        return (CudaMemory, Pinned)
    return (HostMemory,) if device.kind == "cpu" else (Pinned,)
