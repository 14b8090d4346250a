"""A CPU device's buffers are host memory: NumPy and torch see what the kernel wrote.

OpenCL lets the host touch a buffer only while it is mapped, and kernels only while it is not, so
a result is a mapping: it ends when the last view is gone, and the next kernel waits for its end.
Only for CPU devices; a host pointer shared with a GPU goes stale on some NVIDIA systems.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from backtest.agent.columns import Column
from backtest.errors import DeviceError
from opencl import buffers
from opencl.buffers import Array, DeviceArray
from opencl.devices import Device
from opencl.exchange.interface import Exchange, Lent
from opencl.exchange.pool import KEPT_SHARE, Pool

PAGE = 4096


class HostBlock:
    """A buffer that the driver allocated in host memory.

    Attributes:
        nbytes: its size.
        buffer: the `pyopencl.Buffer`.
        unmapped: the event after which kernels may write again, or None.
    """

    def __init__(self, device: Device, nbytes: int) -> None:
        self.nbytes = nbytes
        self.buffer = buffers.allocate(
            device, nbytes, ("READ_WRITE", "ALLOC_HOST_PTR"), "results in host memory"
        )
        self.unmapped: Any = None


class HostMemory(Exchange):
    """Results are mapped buffers."""

    way: ClassVar[str] = "host memory"
    shared: ClassVar[bool] = True

    def __init__(self, device: Device, learner: str = "cpu") -> None:
        """See `Exchange`."""
        super().__init__(device, learner)
        if device.kind != "cpu" or learner != "cpu":
            raise DeviceError(f"{device.name} has memory of its own, or the learner {learner} has")
        self.pool = Pool(
            lambda nbytes: HostBlock(device, nbytes), PAGE, device.global_memory // KEPT_SHARE
        )

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Lent:
        """Take a block; see `Exchange.empty`."""
        kind = np.dtype(dtype)
        block = self.pool.take(buffers.size_of(shape, kind))
        return Lent(self.device, block.buffer, shape, kind, block)

    def begin(self, queue: Any, arrays: Iterable[DeviceArray]) -> None:
        """Wait until the blocks' last mappings have ended; see `Exchange.begin`."""
        for array in arrays:
            if isinstance(array, Lent) and array.block.unmapped is not None:
                array.block.unmapped.wait()
                array.block.unmapped = None

    def finish(self, queue: Any, arrays: Mapping[str, DeviceArray]) -> dict[str, Column]:
        """Map; see `Exchange.finish`."""
        return {name: self._mapped(queue, array) for name, array in arrays.items()}

    def _mapped(self, queue: Any, array: DeviceArray) -> Array:
        import pyopencl as cl

        assert isinstance(array, Lent)
        flags = cl.map_flags.READ | cl.map_flags.WRITE  # results are the caller's, as copies are
        shape = (buffers.size_of(array.shape, array.dtype),)
        memory, _ = cl.enqueue_map_buffer(queue, array.buffer, flags, 0, shape, np.uint8)
        weakref.finalize(memory, _end, self.pool, array.block, memory.base).atexit = False
        return buffers.shaped(memory, array.shape, array.dtype)


def _end(pool: Pool[HostBlock], block: HostBlock, mapping: Any) -> None:
    """End a mapping and give its block back; nobody sees the memory any more."""
    block.unmapped = mapping.release()
    pool.give(block)
