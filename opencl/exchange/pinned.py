"""Through page-locked host memory, which a GPU copies to and from at the bus's rate.

For the CPU a result is that memory. For a learner on a GPU that does not share memory with OpenCL
the array goes in chunks through two blocks: while torch fetches one, OpenCL fills the other. The
blocks are locked twice, by OpenCL's allocation and by `cudaHostRegister`; each API copies at full
rate only from what it knows to be locked.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from backtest.agent.columns import Column
from backtest.errors import DeviceError
from opencl import buffers
from opencl.buffers import Array, DeviceArray
from opencl.devices import Device
from opencl.exchange.interface import Exchange
from opencl.exchange.pool import Pool

if TYPE_CHECKING:
    from torch import Tensor

UNIT = 2**16  # bytes
KEPT = 2**30  # bytes of locked memory that may lie idle
CHUNK = 2**24  # bytes; the two copies of a chunk take about 0.3 ms each
PORTABLE = 1  # cudaHostRegisterPortable


class PinnedBlock:
    """Page-locked host memory.

    Attributes:
        nbytes: its size.
        memory: uint8[nbytes], mapped as long as the block lives; no kernel gets it.
    """

    def __init__(self, device: Device, nbytes: int) -> None:
        import pyopencl as cl

        self.nbytes = nbytes
        flags = cl.map_flags.READ | cl.map_flags.WRITE
        buffer = buffers.allocate(
            device, nbytes, ("READ_WRITE", "ALLOC_HOST_PTR"), "results in locked memory"
        )
        self.memory: Array
        self.memory, _ = cl.enqueue_map_buffer(device.queue, buffer, flags, 0, (nbytes,), np.uint8)


class Lane:
    """A block that torch knows to be locked, for one chunk at a time."""

    def __init__(self, device: Device, learner: str) -> None:
        import torch

        self.block = PinnedBlock(device, CHUNK)
        memory = self.block.memory
        cuda: Any = torch.cuda
        code = int(cuda.cudart().cudaHostRegister(memory.ctypes.data, CHUNK, PORTABLE))
        if code:
            raise DeviceError(f"cudaHostRegister returned {code}")
        weakref.finalize(self, _unlock, self.block).atexit = False
        self.tensor = torch.from_numpy(memory)
        self.sent = cuda.Event()

    def fetch(self, queue: Any, array: DeviceArray, first: int, count: int) -> Any:
        """Enqueue the copy of bytes [first, first + count) into the lane; return its event."""
        import pyopencl as cl

        self.sent.synchronize()
        target = self.block.memory[:count]
        return cl.enqueue_copy(queue, target, array.buffer, src_offset=first, is_blocking=False)

    def send(self, target: Tensor, arrived: Any) -> None:
        """Enqueue the copy to the learner, uint8[count], once the bytes have arrived."""
        arrived.wait()
        target.copy_(self.tensor[: len(target)], non_blocking=True)
        self.sent.record()


def _unlock(block: PinnedBlock) -> None:
    import torch

    cuda: Any = torch.cuda
    cuda.cudart().cudaHostUnregister(block.memory.ctypes.data)


class Pinned(Exchange):
    """Results are locked host memory, or torch tensors filled through it."""

    way: ClassVar[str] = "pinned"
    shared: ClassVar[bool] = False

    def __init__(self, device: Device, learner: str = "cpu") -> None:
        """See `Exchange`."""
        super().__init__(device, learner)
        self.pool = Pool(lambda nbytes: PinnedBlock(device, nbytes), UNIT, KEPT)
        self._lanes = [] if learner == "cpu" else [Lane(device, learner) for _ in range(2)]
        self._lock = threading.Lock()

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> DeviceArray:
        """Return an array of the device; see `Exchange.empty`."""
        return buffers.empty(self.device, shape, dtype)

    def finish(self, queue: Any, arrays: Mapping[str, DeviceArray]) -> dict[str, Column]:
        """Copy; see `Exchange.finish`."""
        found: dict[str, Column] = {}
        with self._lock:
            for name, array in arrays.items():
                to_torch = self._lanes and not array.dtype.fields
                found[name] = self._sent(queue, array) if to_torch else self._fetched(queue, array)
        queue.finish()
        return found

    def _fetched(self, queue: Any, array: DeviceArray) -> Array:
        """Enqueue the copy to a block and return the array in it, not filled yet."""
        import pyopencl as cl

        block = self.pool.take(buffers.size_of(array.shape, array.dtype))
        # not a view of the block's array: views of a view would not keep it alive
        memory = np.frombuffer(block.memory.data, np.uint8)
        weakref.finalize(memory, self.pool.give, block).atexit = False
        if array.nbytes:
            cl.enqueue_copy(queue, memory[: array.nbytes], array.buffer, is_blocking=False)
        return buffers.shaped(memory, array.shape, array.dtype)

    def _sent(self, queue: Any, array: DeviceArray) -> Tensor:
        """Copy to torch's device, chunk after chunk; its stream has the last copies to do."""
        import torch

        kind = torch.from_numpy(np.empty(0, array.dtype)).dtype
        with torch.cuda.device(self.learner):
            out = torch.empty(array.shape, dtype=kind, device=self.learner)
            flat = out.view(-1).view(torch.uint8)
            waiting: list[tuple[Lane, Tensor, Any]] = []
            for place, first in enumerate(range(0, array.nbytes, CHUNK)):
                lane, part = self._lanes[place % 2], flat[first : first + CHUNK]
                arrived = lane.fetch(queue, array, first, len(part))
                for before, target, event in waiting:
                    before.send(target, event)
                waiting = [(lane, part, arrived)]
            for before, target, event in waiting:
                before.send(target, event)
        return out
