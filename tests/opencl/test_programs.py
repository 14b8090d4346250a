"""Building: what a user sees when it fails, and that a second build is a file read."""

from pathlib import Path

import numpy as np
import pytest

from backtest.errors import KernelError
from opencl import binaries, build
from opencl.buffers import empty
from opencl.devices import Device
from opencl.programs import Program

COUNT = (
    "__kernel void count(__global int *out) { out[get_global_id(0)] = FROM + get_global_id(0); }"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(binaries, "directory", lambda: tmp_path)
    return tmp_path


def count(program: Program) -> list[int]:
    out = empty(program.device, 3, np.int32)
    program.kernel("count")(program.device.queue, (3,), None, out.buffer)
    return out.read().tolist()


def test_files_sizes_and_extra_source_make_a_program(device: Device) -> None:
    program = Program(device, ("philox.cl",), {"FROM": 5}, COUNT)
    assert count(program) == [5, 6, 7]
    assert program.source.startswith("#pragma OPENCL FP_CONTRACT OFF")
    assert program.source.index("#define FROM (5)") < program.source.index("philox4x32_10")
    assert "warning" not in program.log.lower()


def test_a_kernel_is_made_once(device: Device) -> None:
    program = Program(device, (), {"FROM": 0}, COUNT)
    assert program.kernel("count") is program.kernel("count")


def test_an_unknown_kernel_names_those_there_are(device: Device) -> None:
    program = Program(device, (), {"FROM": 0}, COUNT + " __kernel void other(__global int *out) {}")
    with pytest.raises(KernelError, match="no kernel cuont; there are: count, other"):
        program.kernel("cuont")


def test_a_missing_file_names_those_there_are(device: Device) -> None:
    with pytest.raises(KernelError, match=r"no kernel file filox\.cl; there are: .*philox\.cl"):
        Program(device, ("filox.cl",))


def test_options_keep_divisions_exact_where_the_compiler_has_a_choice(device: Device) -> None:
    wanted = device.rounding_option
    assert ("-cl-fp32-correctly-rounded-divide-sqrt" in build.options(device)) == wanted
    assert Program(device, (), {"FROM": 0}, COUNT).options == build.options(device)


def test_a_failed_build_shows_log_place_and_preamble(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad.cl").write_text("// a comment\n__kernel void bad() { undeclared = N_ENVS; }\n")
    monkeypatch.setattr(build, "KERNELS", tmp_path)
    with pytest.raises(KernelError) as caught:
        Program(device, ("bad.cl",), {"N_ENVS": 7})
    message = str(caught.value)
    assert device.name in message
    assert device.driver in message
    assert "undeclared" in message
    assert "bad.cl:2" in message
    assert "#define N_ENVS (7)" in message
    assert list(tmp_path.iterdir()) == [tmp_path / "bad.cl"]


def test_a_second_build_comes_from_disk(device: Device, folder: Path) -> None:
    first = Program(device, (), {"FROM": 1}, COUNT)
    second = Program(device, (), {"FROM": 1}, COUNT)
    other = Program(device, (), {"FROM": 2}, COUNT)
    assert (count(first), count(second), count(other)) == ([1, 2, 3], [1, 2, 3], [2, 3, 4])
    # Drivers that keep binaries themselves are not doubled.
    assert (first.cached, second.cached, other.cached) == (False, not device.caches_builds, False)
    assert len(list(folder.iterdir())) == (0 if device.caches_builds else 2)


def test_a_damaged_binary_is_compiled_again(device: Device, folder: Path) -> None:
    Program(device, (), {"FROM": 3}, COUNT)
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes()[:-100])
    again = Program(device, (), {"FROM": 3}, COUNT)
    assert not again.cached
    assert count(again) == [3, 4, 5]


def test_a_binary_the_driver_refuses_is_compiled_again(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: dict[str, bytes] = {}
    monkeypatch.setattr(binaries, "load", lambda _: b"not a program")
    monkeypatch.setattr(binaries, "save", saved.__setitem__)
    program = Program(device, (), {"FROM": 4}, COUNT)
    assert not program.cached
    assert count(program) == [4, 5, 6]
    assert len(saved) == (0 if device.caches_builds else 1)


def test_no_environment_variable_reaches_the_compiler(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYOPENCL_BUILD_OPTIONS", "-cl-fast-relaxed-math")
    with pytest.raises(KernelError, match="unset it"):
        Program(device, (), {"FROM": 6}, COUNT)
