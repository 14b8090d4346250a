"""Arrays on a device, copied there and back.

What kernels write for the learner goes by `opencl.exchange`, which may share memory instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from math import prod
from operator import or_
from typing import Any

import numpy as np
import numpy.typing as npt

from backtest.errors import DeviceError
from opencl.devices import Device

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class DeviceArray:
    """A buffer with the shape and dtype of what it holds, C order.

    Attributes:
        buffer: the `pyopencl.Buffer`, to pass to a kernel.
    """

    device: Device = field(repr=False)
    buffer: Any = field(repr=False)
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of the array; the buffer of an empty one is larger."""
        return prod(self.shape) * self.dtype.itemsize

    def read(self) -> Array:
        """Wait for the queue and return a copy on the host."""
        import pyopencl as cl

        out = np.empty(self.shape, self.dtype)
        if self.nbytes:
            cl.enqueue_copy(self.device.queue, out, self.buffer)
        return out

    def write(self, array: Array) -> None:
        """Replace the contents by an array of the same shape and dtype, and wait for it.

        Raises:
            ValueError: shape or dtype differ.
        """
        import pyopencl as cl

        if array.shape != self.shape or array.dtype != self.dtype:
            raise ValueError(f"{array.dtype}{array.shape} into {self.dtype}{self.shape}")
        if self.nbytes:
            cl.enqueue_copy(self.device.queue, self.buffer, np.ascontiguousarray(array))


def upload(device: Device, array: Array, writable: bool = False) -> DeviceArray:
    """Copy an array to the device; kernels may write to it only if `writable`.

    Raises:
        DeviceError: the device has no room.
    """
    held = _allocate(device, array.shape, array.dtype, "READ_WRITE" if writable else "READ_ONLY")
    held.write(array)
    return held


def empty(device: Device, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> DeviceArray:
    """Return an array that kernels may read and write, contents undefined.

    Raises:
        DeviceError: the device has no room.
    """
    shape = (shape,) if isinstance(shape, int) else shape
    return _allocate(device, shape, np.dtype(dtype), "READ_WRITE")


def size_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Return the bytes of an array's buffer; OpenCL has no empty one."""
    return max(prod(shape) * dtype.itemsize, 4)


def shaped(memory: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return the array at the beginning of a memory uint8[m]; a view."""
    return memory[: prod(shape) * dtype.itemsize].view(dtype).reshape(shape)


def allocate(device: Device, nbytes: int, flags: tuple[str, ...], what: str) -> Any:
    """Return a `pyopencl.Buffer`.

    Args:
        device: where.
        nbytes: its size, above 0.
        flags: names of `pyopencl.mem_flags`.
        what: it is for, named in errors.

    Raises:
        DeviceError: the device has no room.
    """
    import pyopencl as cl

    limit = device.handle.max_mem_alloc_size
    try:
        if nbytes > limit:
            raise DeviceError(
                f"{device.name}: {what} of {nbytes} bytes; one buffer may have {limit}: use fewer "
                "episodes or shorter ones"
            )
        flag = reduce(or_, (getattr(cl.mem_flags, name) for name in flags))
        return cl.Buffer(device.context, flag, nbytes)
    except cl.Error as error:
        raise DeviceError(
            f"{device.name}: no room for {what}, {nbytes} bytes: {error}; use fewer episodes"
        ) from error


def _allocate(
    device: Device, shape: tuple[int, ...], dtype: np.dtype[Any], flag: str
) -> DeviceArray:
    buffer = allocate(device, size_of(shape, dtype), (flag,), f"{dtype}{shape}")
    return DeviceArray(device, buffer, shape, dtype)
