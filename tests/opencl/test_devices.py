"""Which device is taken, what is said when there is none, and life in other processes."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from backtest.errors import DeviceError, KernelError
from opencl import devices, probe
from opencl.devices import Device, all_devices, select

RUN = """
import numpy as np
from opencl.buffers import empty
from opencl.devices import all_devices, select
from opencl.programs import Program

def run(device):
    out = empty(device, 1000, np.float32)
    source = "__kernel void k(__global float *o) { o[get_global_id(0)] = get_global_id(0) * 0.5f; }"
    Program(device, (), {}, source).kernel("k")(device.queue, (1000,), None, out.buffer)
    return float(out.read().sum())
"""
ANSWER = "249750.0"
PATIENCE = 300.0  # seconds


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def fake(name: str, system: str, kind: str, **handle: object) -> Device:
    return Device(
        handle=SimpleNamespace(**{"host_unified_memory": kind != "gpu"} | handle),
        name=name,
        platform=system,
        driver="1",
        kind=kind,
        nvidia=False,
        compute_units=1,
        global_memory=1,
        local_memory=1,
        rounding_option=True,
        process=os.getpid(),
        inherited=False,
    )


MACHINE = [
    fake("pthread-haswell", devices.POCL, "cpu"),
    fake("AMD EPYC", "Other CPU", "cpu"),
    fake("NVIDIA H200", devices.POCL, "gpu"),
    fake("AMD EPYC", devices.INTEL, "cpu"),
    fake("FPGA", "Other", "accelerator"),
    fake("Intel Iris", "Intel(R) OpenCL Graphics", "gpu", host_unified_memory=True),
    fake("NVIDIA H200", "NVIDIA CUDA", "gpu"),
]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> list[Device]:
    found = sorted(MACHINE, key=devices._rank)
    monkeypatch.setattr(devices, "all_devices", lambda: tuple(found))
    return found


def test_order_is_gpu_then_intel_then_pocl(machine: list[Device]) -> None:
    assert [(d.name, d.platform) for d in machine] == [
        ("NVIDIA H200", "NVIDIA CUDA"),
        ("Intel Iris", "Intel(R) OpenCL Graphics"),
        ("NVIDIA H200", devices.POCL),
        ("AMD EPYC", devices.INTEL),
        ("AMD EPYC", "Other CPU"),
        ("FPGA", "Other"),
        ("pthread-haswell", devices.POCL),
    ]


@pytest.mark.parametrize(
    ("spec", "name", "system"),
    [
        ("auto", "NVIDIA H200", "NVIDIA CUDA"),
        ("gpu", "NVIDIA H200", "NVIDIA CUDA"),
        ("cpu", "AMD EPYC", devices.INTEL),
        (" CPU ", "AMD EPYC", devices.INTEL),
        ("iris", "Intel Iris", "Intel(R) OpenCL Graphics"),
        ("portable", "NVIDIA H200", devices.POCL),
        ("Haswell", "pthread-haswell", devices.POCL),
    ],
)
def test_select(machine: list[Device], spec: str, name: str, system: str) -> None:
    chosen = select(spec)
    assert (chosen.name, chosen.platform) == (name, system)


@pytest.mark.parametrize("spec", ["Radeon", "", "  "])
def test_no_match_lists_what_there_is(machine: list[Device], spec: str) -> None:
    with pytest.raises(DeviceError) as caught:
        select(spec)
    message = str(caught.value)
    assert f'device = "{spec}"' in message
    assert "gpu NVIDIA H200 (NVIDIA CUDA); " in message
    assert "cpu pthread-haswell (Portable Computing Language)" in message


@pytest.mark.parametrize(
    ("system", "processor", "command"),
    [
        ("linux", "x86_64", "pip install intel-opencl-rt intel-cmplr-lib-rt"),
        ("linux", "aarch64", "pocl-opencl-icd"),
        ("darwin", "arm64", "PoCL"),
    ],
)
def test_no_device_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, system: str, processor: str, command: str
) -> None:
    monkeypatch.setattr(devices, "all_devices", lambda: ())
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: processor)
    with pytest.raises(DeviceError, match=f"found: none.*{command}"):
        select()


def test_an_empty_list_of_the_users_is_named(tmp_path: Path) -> None:
    done = python("from opencl.devices import select; select()", OCL_ICD_VENDORS=str(tmp_path))
    assert "DeviceError: no OpenCL device fits" in done.stderr
    assert f"found: none. OCL_ICD_VENDORS={tmp_path} is set" in done.stderr


def test_devices_are_the_same_objects_each_time(device: Device) -> None:
    assert device in all_devices()
    assert device.context is device.context
    assert device.queue is device.queue
    assert device.context.devices == [device.handle]


def test_only_the_timed_queue_times(device: Device) -> None:
    import pyopencl as cl

    flag = cl.command_queue_properties.PROFILING_ENABLE
    assert not device.queue.properties & flag
    assert device.timed_queue.properties & flag


def test_describe_is_plain_and_complete(device: Device) -> None:
    described = json.loads(json.dumps(device.describe()))
    assert described["name"] == device.name
    assert described["correctly_rounded"] is True
    assert described["problem"] is None
    assert described["compute_units"] >= 1
    assert described["global_memory"] > described["local_memory"] > 0


def test_describe_reports_a_broken_device(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Device) -> None:
        raise KernelError("does not build\nlog")

    monkeypatch.setattr(probe, "probe", broken)
    described = device.describe()
    assert (described["correctly_rounded"], described["problem"]) == (None, "does not build")


def test_a_device_that_cannot_be_opened_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyopencl as cl

    def refuse(_: object) -> None:
        raise cl.RuntimeError("Context", cl.status_code.OUT_OF_HOST_MEMORY, "busy")

    monkeypatch.setattr(cl, "Context", refuse)
    with pytest.raises(DeviceError, match=r"H200 \(NVIDIA CUDA\) is listed but cannot be opened"):
        _ = fake("H200", "NVIDIA CUDA", "gpu").context


def test_platforms_that_fail_do_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyopencl as cl

    class Broken:
        def get_devices(self) -> None:
            raise cl.RuntimeError("get_devices", cl.status_code.DEVICE_NOT_FOUND, "no hardware")

    here = cl.get_platforms()
    monkeypatch.setattr(cl, "get_platforms", lambda: [Broken(), *here])
    assert len(devices._enumerate(inherited=False)) == len(all_devices())

    def none() -> None:
        raise cl.LogicError("get_platforms", cl.status_code.PLATFORM_NOT_FOUND_KHR, "none")

    monkeypatch.setattr(cl, "get_platforms", none)
    assert devices._enumerate(inherited=False) == ()


def test_pyopencl_that_does_not_load_is_a_device_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    with pytest.raises(DeviceError, match="pyopencl does not load"):
        devices._enumerate(inherited=False)


def test_modules_load_without_pyopencl_and_torch() -> None:
    code = (
        "import sys, opencl.binaries, opencl.buffers, opencl.build, opencl.devices, opencl.icd, "
        "opencl.layout, opencl.probe, opencl.programs; "
        "print([m for m in ('pyopencl', 'torch', 'platformdirs') if m in sys.modules])"
    )
    done = python(code)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_home_that_cannot_be_written_is_no_error(device: Device) -> None:
    code = f"{RUN}print(run(select({device.platform!r})))"
    done = python(code, HOME="/dev/null", XDG_CACHE_HOME="/dev/null")
    if device.platform == devices.POCL:  # hides its device when it cannot make its own cache
        assert "DeviceError: no OpenCL device fits" in done.stderr
    else:
        assert done.stdout.strip() == ANSWER, done.stderr


def test_many_processes_at_once(tmp_path: Path) -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-c", RUN + "print(run(select()))"],
            env=os.environ | {"XDG_CACHE_HOME": str(tmp_path)},
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    assert [process.communicate(timeout=PATIENCE)[0].strip() for process in running] == [ANSWER] * 4
    assert not list(tmp_path.rglob(".new-*"))


FORK = """
import os, sys
parent = all_devices()
for device in parent: run(device)
child = os.fork()
if child == 0:
    for old, new in zip(parent, all_devices()):
        try:
            old.queue
        except Exception as error:
            print(type(error).__name__, "call select() again" in str(error))
        try:
            print(new.platform, run(new))
        except Exception as error:
            print(new.platform, type(error).__name__, "spawn" in str(error))
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
"""


def test_a_forked_child_opens_devices_anew_or_is_told_why_not() -> None:
    done = python(RUN + FORK)
    expected = []
    for device in all_devices():
        result = ANSWER if device.platform == devices.INTEL else "DeviceError True"
        expected += ["DeviceError True", f"{device.platform} {result}"]
    assert done.stdout.splitlines() == expected, done.stderr


@pytest.mark.parametrize("first", ["torch", "opencl"])
def test_torch_and_a_cpu_runtime_share_a_process(first: str) -> None:
    torch_first = "import torch; a = torch.ones(64, 64); (a @ a).sum()\n" * (first == "torch")
    code = f"""
{torch_first}{RUN}
from concurrent.futures import ThreadPoolExecutor
import sys
device = select("cpu")
print(run(device))
import torch
ones = torch.ones(256, 256)
with ThreadPoolExecutor(2) as pool:
    products = pool.submit(lambda: [(ones @ ones).sum().item() for _ in range(50)])
    sums = pool.submit(lambda: [run(device) for _ in range(50)])
    print(set(products.result()), set(sums.result()))
"""
    done = python(code)
    assert done.stdout.splitlines() == [ANSWER, f"{{{256.0**3}}} {{{ANSWER}}}"], done.stderr
