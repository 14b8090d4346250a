"""One allocation for both: kernels of OpenCL write it, torch's of CUDA read it, nothing is copied.

Order. OpenCL's queue and torch's streams know nothing of each other, so the host orders them, here
and nowhere else: `begin` waits for torch (`torch.cuda.synchronize`) before kernels may write,
`finish` waits for the queue (`queue.finish`) before torch may read.

Ownership. A block holds the memory, its two mappings and its address range. Views that torch has
keep it from the pool; when the last one dies it returns there, and is mapped anew never. A block
that is dropped is freed at the next `begin` or the next new block, after torch was waited for:
a finaliser may run at any time, also while torch captures a graph, and must not touch the driver.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from backtest.agent.columns import Column
from backtest.errors import DeviceError
from opencl import buffers
from opencl.buffers import DeviceArray
from opencl.devices import Device
from opencl.exchange import cuda_driver, external_memory
from opencl.exchange.interface import Exchange, Lent
from opencl.exchange.learner import cuda_index
from opencl.exchange.pool import KEPT_SHARE, Pool

if TYPE_CHECKING:
    from torch import Tensor

_dropped: deque[ExitStack] = deque()  # what frees blocks that nobody has any more


class CudaBlock:
    """Memory of a GPU, mapped by CUDA and imported by OpenCL.

    Attributes:
        nbytes: its size.
        address: where torch sees it.
        buffer: the `pyopencl.Buffer`.
        holders: the queue that acquired the buffer, as long as it has not released it.
    """

    def __init__(self, device: Device, index: int, nbytes: int) -> None:
        import torch

        with ExitStack() as undo, torch.cuda.device(index):
            torch.cuda.synchronize()  # makes torch's context current, and lets `_free` unmap
            _free()
            self.nbytes = nbytes
            self.address, descriptor = cuda_driver.mapped(index, nbytes, undo)
            try:
                self.buffer = external_memory.imported(device, descriptor, nbytes)
            except BaseException:
                os.close(descriptor)
                raise
            self.holders: list[Any] = []
            undo.callback(self.buffer.release)
            undo.callback(_let_go, device, self.buffer, self.holders)
            weakref.finalize(self, _dropped.append, undo.pop_all()).atexit = False


def _let_go(device: Device, buffer: Any, holders: list[Any]) -> None:
    """Release a buffer whose launch nobody finished; its memory would never be free again."""
    for queue in holders:
        external_memory.release(device, queue, [buffer])
        queue.finish()


def _free() -> None:
    """Free what was dropped; torch was waited for."""
    with suppress(IndexError):  # other threads free too
        while True:
            _dropped.popleft().close()


class CudaMemory(Exchange):
    """Results are torch tensors on the very memory."""

    way: ClassVar[str] = "shared CUDA memory"
    shared: ClassVar[bool] = True

    def __init__(self, device: Device, learner: str = "cpu") -> None:
        """See `Exchange`."""
        super().__init__(device, learner)
        self.index = cuda_index(device)
        if learner != f"cuda:{self.index}":
            raise DeviceError(f"{device.name} is cuda:{self.index}, the learner is on {learner}")
        self.pool = Pool(
            lambda nbytes: CudaBlock(device, self.index, nbytes),
            cuda_driver.granularity(self.index),
            device.global_memory // KEPT_SHARE,
        )

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> DeviceArray:
        """Take a block; records get a buffer of the device. See `Exchange.empty`."""
        kind = np.dtype(dtype)
        if kind.fields:
            return buffers.empty(self.device, shape, kind)
        block = self.pool.take(buffers.size_of(shape, kind))
        return Lent(self.device, block.buffer, shape, kind, block)

    def begin(self, queue: Any, arrays: Iterable[DeviceArray]) -> None:
        """Wait for torch, then acquire; see `Exchange.begin`."""
        import torch

        torch.cuda.synchronize(self.index)
        _free()
        lent = [array for array in arrays if isinstance(array, Lent)]
        external_memory.acquire(self.device, queue, [array.buffer for array in lent])
        for array in lent:
            array.block.holders.append(queue)

    def finish(self, queue: Any, arrays: Mapping[str, DeviceArray]) -> dict[str, Column]:
        """Release, wait for the queue, and show torch the memory; see `Exchange.finish`."""
        lent = [array for array in arrays.values() if isinstance(array, Lent)]
        external_memory.release(self.device, queue, [array.buffer for array in lent])
        for array in lent:
            array.block.holders.remove(queue)
        queue.finish()
        return {
            name: self._view(array) if isinstance(array, Lent) else array.read()
            for name, array in arrays.items()
        }

    def _view(self, array: Lent) -> Tensor:
        import torch

        memory = _Memory(array)
        weakref.finalize(memory, self.pool.give, array.block).atexit = False
        view: Tensor = torch.as_tensor(memory, device=self.learner)
        return view


class _Memory:
    """What torch keeps alive as long as a tensor shows the block."""

    def __init__(self, array: Lent) -> None:
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.block.address, False),
            "strides": None,
            "version": 3,
        }
