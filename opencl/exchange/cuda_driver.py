"""CUDA's half of shared memory: libcuda's virtual memory management, by ctypes.

Names and structs are those of cuda.h (CUDA driver API, "Virtual Memory Management"). PyTorch's
allocator cannot export its memory, so it is created here and shown to torch.
"""

from __future__ import annotations

import ctypes
from contextlib import ExitStack
from functools import cache
from typing import Any

from backtest.errors import DeviceError

PINNED, DEVICE, POSIX_FD, READ_WRITE = 1, 1, 1, 3
OUT_OF_MEMORY = 2


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("win32", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", Location), ("flags", ctypes.c_int))


@cache
def library() -> Any:
    """Return libcuda, which torch has loaded already.

    Raises:
        OSError: this machine has none.
    """
    return ctypes.CDLL("libcuda.so.1")


def call(name: str, *arguments: Any) -> None:
    """Call a function of the driver.

    Raises:
        DeviceError: it returned an error.
        AttributeError: this driver has no such function.
    """
    code = getattr(library(), name)(*arguments)
    if code:
        text = ctypes.c_char_p()
        library().cuGetErrorName(code, ctypes.byref(text))
        error = text.value.decode() if text.value else f"error {code}"
        full = "; use fewer episodes" if code == OUT_OF_MEMORY else ""
        raise DeviceError(f"{name}: {error}{full}")


def uuid(index: int) -> bytes:
    """Return the 16 bytes that identify a CUDA device; indices are torch's.

    Raises:
        DeviceError: there is no such device.
    """
    device, found = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), index)
    call("cuDeviceGetUuid_v2", found, device)
    return bytes(found)


def _properties(index: int) -> Properties:
    here = Location(DEVICE, index)
    return Properties(type=PINNED, handle_types=POSIX_FD, location=here)


@cache
def granularity(index: int) -> int:
    """Return the bytes that sizes of mappings are multiples of, 2 MiB on most GPUs."""
    found, wanted = ctypes.c_size_t(), _properties(index)
    call("cuMemGetAllocationGranularity", ctypes.byref(found), ctypes.byref(wanted), 0)
    return found.value


def mapped(index: int, nbytes: int, undo: ExitStack) -> tuple[int, int]:
    """Create memory on a GPU and map it for torch.

    torch's context of the device (its primary one) must be current.

    Args:
        index: the CUDA device.
        nbytes: a multiple of `granularity`.
        undo: receives, step by step, what unmaps and frees everything again.

    Returns:
        The address, and a file descriptor of the memory that the caller must close or hand on.

    Raises:
        DeviceError: no room, or the driver does not export memory.
    """
    size, none = ctypes.c_size_t(nbytes), ctypes.c_uint64(0)
    wanted, memory, address = _properties(index), ctypes.c_uint64(), ctypes.c_uint64()
    call("cuMemCreate", ctypes.byref(memory), size, ctypes.byref(wanted), none)
    undo.callback(_quietly, "cuMemRelease", memory)
    call("cuMemAddressReserve", ctypes.byref(address), size, ctypes.c_size_t(0), none, none)
    undo.callback(_quietly, "cuMemAddressFree", address, size)
    call("cuMemMap", address, size, ctypes.c_size_t(0), memory, none)
    undo.callback(_quietly, "cuMemUnmap", address, size)
    access = Access(Location(DEVICE, index), READ_WRITE)
    call("cuMemSetAccess", address, size, ctypes.byref(access), ctypes.c_size_t(1))
    descriptor = ctypes.c_int()
    call("cuMemExportToShareableHandle", ctypes.byref(descriptor), memory, POSIX_FD, none)
    return address.value, descriptor.value


def _quietly(name: str, *arguments: Any) -> None:
    """Call what frees; there is nothing to do about an error then."""
    getattr(library(), name)(*arguments)
