"""The OpenCL devices of this machine, in the order in which `auto` prefers them.

pyopencl is imported on first use, so that `--help` and the code server do not load drivers.
"""

from __future__ import annotations

import os
import platform as machine
import sys
import threading
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from backtest.errors import DeviceError, KernelError
from opencl import icd, probe

POCL = "Portable Computing Language"
INTEL = "Intel(R) OpenCL"

_lock = threading.Lock()
_found: tuple[int, tuple[Device, ...]] | None = None  # process id, its devices


@dataclass(frozen=True, eq=False)
class Device:
    """One device; context and queue are made on first use and belong to this process.

    Attributes:
        handle: the `pyopencl.Device`.
        name: as its driver reports it.
        platform: name of the OpenCL platform.
        driver: version of the driver.
        kind: "gpu", "cpu" or "accelerator".
        nvidia: an NVIDIA GPU with NVIDIA's driver.
        compute_units: cores of a CPU, multiprocessors of a GPU.
        global_memory: bytes.
        local_memory: bytes a work-group.
        rounding_option: the compiler takes `-cl-fp32-correctly-rounded-divide-sqrt`.
        process: id of the process that found it.
        inherited: the process was forked from one whose driver was already loaded.
    """

    handle: Any = field(repr=False)
    name: str
    platform: str
    driver: str
    kind: str
    nvidia: bool
    compute_units: int
    global_memory: int
    local_memory: int
    rounding_option: bool
    process: int = field(repr=False)
    inherited: bool = field(repr=False)

    @cached_property
    def _context(self) -> Any:
        import pyopencl as cl

        # Seen: Intel's runtime works in the child, PoCL hangs. CUDA does not support it.
        if self.inherited and self.platform != INTEL:
            raise DeviceError(
                f"{self.name} ({self.platform}) was opened before this process was forked, and its "
                "driver does not survive a fork; start workers with multiprocessing's 'spawn'"
            )
        try:
            return cl.Context([self.handle])
        except cl.Error as error:
            raise DeviceError(
                f"{self.name} ({self.platform}) is listed but cannot be opened: {error}; check "
                "its driver and whether another process holds it"
            ) from error

    @property
    def context(self) -> Any:
        """The `pyopencl.Context` of this device alone.

        Raises:
            DeviceError: it cannot be opened, or belongs to the parent of a forked process.
        """
        if os.getpid() != self.process:
            raise DeviceError(
                f"{self.name} belongs to process {self.process}, this one was forked from it; "
                "call select() again in the child"
            )
        return self._context

    @cached_property
    def _queues(self) -> dict[bool, Any]:
        return {}

    @property
    def queue(self) -> Any:
        """The in-order `pyopencl.CommandQueue`."""
        return self._queue(timed=False)

    @property
    def timed_queue(self) -> Any:
        """A second in-order queue whose events carry start and end times (profiling)."""
        return self._queue(timed=True)

    def _queue(self, timed: bool) -> Any:
        import pyopencl as cl

        context = self.context
        if timed not in self._queues:
            flag = cl.command_queue_properties.PROFILING_ENABLE if timed else 0
            self._queues[timed] = cl.CommandQueue(context, properties=flag)
        return self._queues[timed]

    @property
    def caches_builds(self) -> bool:
        """The driver keeps compiled programs on disk itself, keyed by their source."""
        return self.nvidia or self.platform == POCL

    @property
    def correctly_rounded(self) -> bool:
        """Float32 arithmetic gives NumPy's bits, measured by a kernel; tests may use array_equal.

        Raises:
            KernelError: the device cannot build or run the probe.
        """
        return not probe.probe(self).inexact

    def describe(self) -> dict[str, Any]:
        """Return plain values for a table, JSON and provenance; opens the device to measure."""
        problem, rounded, inexact = None, None, []
        try:
            inexact = list(probe.probe(self).inexact)
            rounded = not inexact
        except (DeviceError, KernelError) as error:
            problem = str(error).splitlines()[0]
        return {
            "name": self.name,
            "platform": self.platform,
            "kind": self.kind,
            "driver": self.driver,
            "opencl": self.handle.version.strip(),
            "compute_units": self.compute_units,
            "global_memory": self.global_memory,
            "local_memory": self.local_memory,
            "max_allocation": self.handle.max_mem_alloc_size,
            "max_work_group": self.handle.max_work_group_size,
            "rounding_option": self.rounding_option,
            "correctly_rounded": rounded,
            "inexact": inexact,
            "problem": problem,
        }


def all_devices() -> tuple[Device, ...]:
    """Return every usable device, the preferred first; the same objects within one process."""
    global _found
    with _lock:
        if _found is None or _found[0] != os.getpid():
            _found = (os.getpid(), _enumerate(inherited=_found is not None))
        return _found[1]


def select(spec: str = "auto") -> Device:
    """Return the first device that fits.

    Args:
        spec: "auto", "gpu", "cpu", or a part of a platform's or device's name, in any case.

    Raises:
        DeviceError: none fits; lists those found and the command that installs a CPU runtime.
    """
    wanted = spec.strip().lower()
    devices = all_devices()
    for device in devices:
        names = (device.name.lower(), device.platform.lower())
        if wanted in ("auto", device.kind) or (wanted and any(wanted in name for name in names)):
            return device
    listed = "; ".join(f"{d.kind} {d.name} ({d.platform})" for d in devices) or "none"
    chosen = icd.user_choice()
    raise DeviceError(
        f'no OpenCL device fits device = "{spec}"; found: {listed}. '
        + (f"{chosen} is set, so only what it lists is searched. " if chosen else "")
        + f"A GPU comes with its vendor's driver; a CPU runtime with: {_install_command()}"
    )


def _install_command() -> str:
    if sys.platform == "linux" and machine.machine() == "x86_64":
        return f"pip install {icd.INTEL_PACKAGE} intel-cmplr-lib-rt"
    return "your distribution's PoCL (Debian, Ubuntu: apt-get install pocl-opencl-icd)"


def _enumerate(inherited: bool) -> tuple[Device, ...]:
    # pyopencl's own caches fail where the home directory cannot be written, and wait a minute for
    # the lock of a killed process. `opencl.binaries` has neither trouble.
    with icd.complete_list(), icd.environment("PYOPENCL_NO_CACHE", "1"):
        try:
            import pyopencl as cl
        except ImportError as error:  # a source build without a loader
            raise DeviceError(
                f"pyopencl does not load: {error}; reinstall it with pip install "
                "--force-reinstall pyopencl"
            ) from error
        try:
            platforms = cl.get_platforms()
        except cl.Error:  # the loader's way to say that there are none
            platforms = []
    found = []
    for platform in platforms:
        try:
            handles = [d for d in platform.get_devices() if d.available and d.compiler_available]
        except cl.Error:  # a driver without its hardware must not hide the others
            continue
        found += [_device(platform, handle, inherited) for handle in handles]
    return tuple(sorted(found, key=_rank))  # stable: equal ranks keep the loader's order


def _device(platform: Any, handle: Any, inherited: bool) -> Device:
    import pyopencl as cl

    kind = {cl.device_type.GPU: "gpu", cl.device_type.CPU: "cpu"}.get(
        handle.type & (cl.device_type.GPU | cl.device_type.CPU), "accelerator"
    )
    rounding = cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT
    return Device(
        handle=handle,
        name=handle.name.strip(),
        platform=platform.name.strip(),
        driver=handle.driver_version.strip(),
        kind=kind,
        nvidia=kind == "gpu" and "nvidia" in platform.vendor.lower(),
        compute_units=handle.max_compute_units,
        global_memory=handle.global_mem_size,
        local_memory=handle.local_mem_size,
        rounding_option=bool(handle.single_fp_config & rounding),
        process=os.getpid(),
        inherited=inherited,
    )


def _rank(device: Device) -> tuple[bool, bool, bool, bool]:
    """GPUs first, those with their own memory before integrated ones; then Intel; PoCL last."""
    gpu = device.kind == "gpu"
    return (
        not gpu,
        device.platform == POCL,
        gpu and bool(device.handle.host_unified_memory),
        device.platform != INTEL,
    )
