"""Compiles OpenCL C: options that keep NumPy's bits, binaries from the cache, clear errors."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from backtest.errors import KernelError
from opencl import binaries

if TYPE_CHECKING:
    from opencl.devices import Device

KERNELS = Path(__file__).parent / "kernels"
STANDARD = "-cl-std=CL1.2"  # all vendors have it; NVIDIA miscompiles arrays under its default
ROUNDING = "-cl-fp32-correctly-rounded-divide-sqrt"


@dataclass(frozen=True)
class Build:
    """A compiled program.

    Attributes:
        program: the `pyopencl.Program`.
        cached: it came from a binary on disk.
        seconds: what compiling or loading took.
        log: what the compiler said; empty when cached.
    """

    program: Any
    cached: bool
    seconds: float
    log: str


def options(device: Device, registers: int = 0) -> list[str]:
    """Return the compiler options for a device; registers as for `build`."""
    given = [STANDARD, ROUNDING] if device.rounding_option else [STANDARD]
    if registers and device.nvidia:
        given.append(f"-cl-nv-maxrregcount={registers}")
    return given


def read(files: Sequence[str]) -> str:
    """Return the text of these files of `kernels/`, in this order.

    `#line` makes the compiler name file and line in its messages.

    Raises:
        KernelError: a file does not exist.
    """
    parts = []
    for name in files:
        path = KERNELS / name
        if not path.is_file():
            known = ", ".join(sorted(p.name for p in KERNELS.glob("*.cl")))
            raise KernelError(f"no kernel file {name}; there are: {known}")
        parts.append(f'#line 1 "{name}"\n{path.read_text()}')
    return "\n".join(parts)


def build(device: Device, source: str, head: str = "", registers: int = 0) -> Build:
    """Compile `head + source`.

    Args:
        device: the device to compile for.
        source: OpenCL C.
        head: the generated part before it, printed in full when the build fails.
        registers: most a work-item may use on an NVIDIA GPU, in kernels without a required size of
            work-groups; 0: as many as the compiler likes.

    Raises:
        KernelError: the compiler's log and the head.
    """
    # pyopencl appends it to every build, and no environment variable may change a result.
    if os.environ.get("PYOPENCL_BUILD_OPTIONS"):
        raise KernelError("PYOPENCL_BUILD_OPTIONS would change the kernels' arithmetic; unset it")
    begin = perf_counter()
    text, key, given = head + source, None, options(device, registers)
    if not device.caches_builds:
        key = _key(device, text, given)
        binary = binaries.load(key)
        program = _from_binary(device, binary, given) if binary else None
        if program is not None:
            return Build(program, cached=True, seconds=perf_counter() - begin, log="")
    program, log = _from_source(device, text, head, given)
    if key is not None:
        binaries.save(key, program.binaries[0])
    return Build(program, cached=False, seconds=perf_counter() - begin, log=log)


def _from_source(device: Device, text: str, head: str, given: list[str]) -> tuple[Any, str]:
    import pyopencl as cl

    program = cl.Program(device.context, text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the log is not empty; it is returned instead
            program.build(given)
        return program, program.get_build_info(device.handle, cl.program_build_info.LOG).strip()
    except cl.Error as error:
        numbered = "\n".join(f"{i:4} {line}" for i, line in enumerate(head.splitlines(), 1))
        raise KernelError(
            f"a kernel does not build on {device.name} ({device.platform}, driver "
            f"{device.driver}):\n{error}\ngenerated preamble:\n{numbered}"
        ) from error


def _from_binary(device: Device, binary: bytes, given: list[str]) -> Any:
    import pyopencl as cl

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return cl.Program(device.context, [device.handle], [binary]).build(given)
    except cl.Error:  # of another version after all: compile again
        return None


def _key(device: Device, text: str, given: list[str]) -> str:
    handle = device.handle
    parts = [device.platform, handle.platform.version, device.name, handle.version, device.driver]
    if device.kind == "cpu":
        parts.append(binaries.processor())
    return sha256("\0".join((*parts, *given, text)).encode()).hexdigest()
