"""Every OpenCL test that takes `device` runs once on each device of the machine."""

from collections.abc import Callable, Mapping, Sequence

import pytest

from opencl.devices import Device, all_devices
from opencl.programs import Program

DeviceProgram = Callable[..., Program]


def _label(device: Device) -> str:
    return f"{device.kind}-{device.platform.split()[0].lower().removesuffix('(r)')}"


@pytest.fixture(scope="session", params=all_devices(), ids=_label)
def device(request: pytest.FixtureRequest) -> Device:
    return request.param


@pytest.fixture(scope="session")
def device_program(device: Device) -> DeviceProgram:
    """Compile kernel files, with a test's wrapper kernels behind them; equal requests share one."""
    made: dict[tuple[object, ...], Program] = {}

    def compile_(
        files: Sequence[str], extra_source: str = "", sizes: Mapping[str, int] | None = None
    ) -> Program:
        request = (tuple(files), extra_source, tuple(sorted((sizes or {}).items())))
        if request not in made:
            made[request] = Program(device, files, sizes, extra_source)
        return made[request]

    return compile_
