"""A set of kernel files, specialised by sizes and compiled for one device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from backtest.errors import KernelError
from opencl import layout, probe
from opencl.build import build, options, read
from opencl.devices import Device


class Program:
    """Kernel files behind the generated preamble; the device's layout is probed before.

    Kernels hold their arguments, so one program must not be used by two threads at once.

    Attributes:
        device: where it runs.
        source: the whole text that was compiled.
        options: compiler options.
        cached: it came from a binary on disk.
        build_seconds: what compiling or loading took.
        log: what the compiler said; empty when cached.
    """

    def __init__(
        self,
        device: Device,
        files: Sequence[str],
        sizes: Mapping[str, int] | None = None,
        extra_source: str = "",
        registers: int = 0,
    ) -> None:
        """Compile.

        Args:
            device: of `devices.select`.
            files: names in `opencl/kernels`, in the order in which one uses another.
            sizes: constants the kernels are specialised to, `#define`d by name.
            extra_source: OpenCL C after the files, such as a test's wrapper kernels.
            registers: as for `opencl.build.build`.

        Raises:
            KernelError: a file is missing, the layout differs, or the compiler refuses: its log
                and the preamble.
            DeviceError: the device cannot be opened.
        """
        probe.probe(device)
        head = layout.preamble(**(sizes or {}))
        body = read(files) + (f'\n#line 1 "extra"\n{extra_source}' if extra_source else "")
        made = build(device, body, head, registers)
        self.device = device
        self.source = head + body
        self.options = options(device, registers)
        self.cached = made.cached
        self.build_seconds = made.seconds
        self.log = made.log
        self._program = made.program
        self._kernels: dict[str, Any] = {}

    def kernel(self, name: str) -> Any:
        """Return the `pyopencl.Kernel`, one object for all calls (making one is expensive).

        Raises:
            KernelError: no such kernel; lists those there are.
        """
        import pyopencl as cl

        if name not in self._kernels:
            names = self._program.kernel_names.split(";")
            if name not in names:
                raise KernelError(f"no kernel {name}; there are: {', '.join(sorted(names))}")
            self._kernels[name] = cl.Kernel(self._program, name)
        return self._kernels[name]
