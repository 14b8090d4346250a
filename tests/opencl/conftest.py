"""Every OpenCL test that takes `device` runs once on each device of the machine."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from opencl import programs
from opencl.bank_program import bank_program
from opencl.devices import Device, all_devices
from opencl.programs import Program
from opencl.retrieval import retrieval_program
from opencl.rollout import rollout_program
from opencl.simulate import simulator

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


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Replace text of the kernels while programs compile; compiled ones are forgotten."""
    compiled = (simulator, rollout_program, bank_program, retrieval_program)

    def break_(*changes: tuple[str, str]) -> None:
        honest = programs.read

        def read(files: Sequence[str]) -> str:
            text = honest(files)
            for old, new in changes:
                text = text.replace(old, new)
            return text

        monkeypatch.setattr(programs, "read", read)
        for program in compiled:
            program.cache_clear()

    yield break_
    monkeypatch.undo()
    for program in compiled:
        program.cache_clear()
