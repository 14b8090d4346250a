"""OpenCL's half of shared memory: `cl_khr_external_memory_opaque_fd`, by ctypes.

pyopencl wraps neither the import nor its acquire and release. The functions are looked up in the
loader that pyopencl itself is linked to, a second one would not know its objects.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

from backtest.errors import DeviceError
from opencl.devices import Device

OPAQUE_FD = 0x2060  # CL_EXTERNAL_MEMORY_HANDLE_OPAQUE_FD_KHR
DEVICE_UUID = 0x106A  # CL_DEVICE_UUID_KHR
READ_WRITE = 1  # CL_MEM_READ_WRITE


@cache
def library() -> Any:
    """Return pyopencl's extension module; its symbols include those of its OpenCL loader."""
    import pyopencl as cl

    return ctypes.CDLL(cl._cl.__file__)


def uuid(device: Device) -> bytes:
    """Return the 16 bytes by which CUDA and OpenCL mean the same device.

    Raises:
        DeviceError: its driver does not tell.
    """
    found = (ctypes.c_ubyte * 16)()
    handle = ctypes.c_void_p(device.handle.int_ptr)
    size = ctypes.c_size_t(16)
    code = library().clGetDeviceInfo(handle, DEVICE_UUID, size, found, None)
    if code:
        raise DeviceError(f"{device.name} has no UUID: clGetDeviceInfo returned {code}")
    return bytes(found)


def imported(device: Device, descriptor: int, nbytes: int) -> Any:
    """Return a `pyopencl.Buffer` of memory behind a file descriptor.

    Raises:
        DeviceError: the driver refuses; the descriptor is still the caller's then.
        AttributeError: the loader is older than OpenCL 3.0.
    """
    import pyopencl as cl

    create = library().clCreateBufferWithProperties
    create.restype = ctypes.c_void_p
    properties = (ctypes.c_uint64 * 3)(OPAQUE_FD, descriptor, 0)
    code = ctypes.c_int()
    made = create(
        ctypes.c_void_p(device.context.int_ptr),
        properties,
        ctypes.c_uint64(READ_WRITE),
        ctypes.c_size_t(nbytes),
        None,
        ctypes.byref(code),
    )
    if code.value or not made:
        raise DeviceError(f"clCreateBufferWithProperties returned {code.value}")
    return cl.Buffer.from_int_ptr(made, retain=False)


def acquire(device: Device, queue: Any, buffers: Sequence[Any]) -> None:
    """Enqueue that imported buffers are the queue's from here on.

    Raises:
        DeviceError: the driver refuses.
    """
    _enqueue(device, "clEnqueueAcquireExternalMemObjectsKHR", queue, buffers)


def release(device: Device, queue: Any, buffers: Sequence[Any]) -> None:
    """Enqueue that they are not any more.

    Raises:
        DeviceError: the driver refuses.
    """
    _enqueue(device, "clEnqueueReleaseExternalMemObjectsKHR", queue, buffers)


def _enqueue(device: Device, name: str, queue: Any, buffers: Sequence[Any]) -> None:
    if not buffers:
        return
    handles = (ctypes.c_void_p * len(buffers))(*(buffer.int_ptr for buffer in buffers))
    function = _extension(device.handle.platform.int_ptr, name)
    code = function(ctypes.c_void_p(queue.int_ptr), len(buffers), handles, 0, None, None)
    if code:
        raise DeviceError(f"{name} returned {code}")


@cache
def _extension(platform: int, name: str) -> Any:
    find = library().clGetExtensionFunctionAddressForPlatform
    find.restype = ctypes.c_void_p
    address = find(ctypes.c_void_p(platform), name.encode())
    if not address:
        raise DeviceError(f"the driver has no {name}")
    pointer = ctypes.c_void_p
    form = ctypes.CFUNCTYPE(
        ctypes.c_int, pointer, ctypes.c_uint32, pointer, ctypes.c_uint32, pointer, pointer
    )
    return form(address)
