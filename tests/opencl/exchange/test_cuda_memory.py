"""OpenCL and torch on one allocation of an NVIDIA GPU: ownership, fallback, experience."""

import gc
import os

import numpy as np
import pytest

from backtest.agent.columns import host
from backtest.errors import DeviceError
from opencl.collector import DeviceCollector
from opencl.devices import all_devices
from opencl.exchange import CudaMemory, Pinned, cuda_driver, cuda_memory, exchange, torch_device
from opencl.first_round import digest
from tests.opencl.exchange.routes import KEYS, POLICY, launch, rollout

GPU = next((d for d in all_devices() if torch_device(d) != "cpu"), None)
pytestmark = pytest.mark.skipif(GPU is None, reason="needs an NVIDIA GPU that torch can use")


@pytest.fixture
def way():
    found = CudaMemory(GPU, torch_device(GPU))
    yield found
    gc.collect()


def held(index):
    """Free bytes of the GPU and open files of this process, after what was dropped is freed."""
    import torch

    gc.collect()
    torch.cuda.synchronize(index)
    cuda_memory._free()
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info(index)[0], len(os.listdir("/proc/self/fd"))


def test_it_is_the_way_that_is_chosen():
    found = exchange(GPU, torch_device(GPU))
    assert isinstance(found, CudaMemory), found.reason
    assert found.reason is None


def test_the_tensor_lies_at_the_address_of_the_block(way):
    array = way.empty((3, 5), np.float32)
    way.begin(GPU.queue, [array])
    tensor = way.finish(GPU.queue, {"x": array})["x"]
    assert tensor.data_ptr() == array.block.address
    assert array.block.nbytes % cuda_driver.granularity(way.index) == 0


@pytest.mark.parametrize("read", [True, False])
def test_blocks_that_are_dropped_leave_neither_memory_nor_files(way, read):
    run = rollout(GPU)

    def rounds(count):
        for _ in range(count):
            started = launch(run, way)
            if read:
                started.read()
            del started
            assert (way.pool.idle > 0) == read
            way.pool._idle.clear()
        return held(way.index)

    assert rounds(10) == rounds(20)
    assert way.pool.made == 5 * 30


@pytest.mark.parametrize("failing", ["cuMemCreate", "cuMemMap", "cuMemExportToShareableHandle"])
def test_a_driver_that_fails_leaves_the_pinned_way(monkeypatch, failing):
    real = cuda_driver.call
    before = held(cuda_memory.cuda_index(GPU))

    def call(name, *arguments):
        if name == failing:
            raise DeviceError(f"{name}: made to fail")
        real(name, *arguments)

    monkeypatch.setattr(cuda_driver, "call", call)
    found = exchange.__wrapped__(GPU, torch_device(GPU))
    assert isinstance(found, Pinned)
    assert found.reason == f"no shared CUDA memory: {failing}: made to fail"
    assert found.learner == torch_device(GPU)
    del found
    assert held(cuda_memory.cuda_index(GPU))[1] == before[1]


def test_an_import_that_fails_closes_its_file(monkeypatch):
    before = held(cuda_memory.cuda_index(GPU))
    monkeypatch.setattr(cuda_memory.external_memory, "OPAQUE_FD", 0x2FFF)
    found = exchange.__wrapped__(GPU, torch_device(GPU))
    assert isinstance(found, Pinned)
    assert "clCreateBufferWithProperties returned" in found.reason
    del found
    assert held(cuda_memory.cuda_index(GPU))[1] == before[1]


def test_torch_that_still_reads_is_waited_for(way):
    import torch

    n, sums = 2**20, []
    for values in [np.full(n, value, np.int32) for value in range(4)]:
        array = way.empty((n,), np.int32)
        way.begin(GPU.queue, [array])
        array.write(values)
        tensor = way.finish(GPU.queue, {"x": array})["x"]
        torch.cuda._sleep(10**8)  # the sum reads the block some 50 ms after the loop went on
        sums.append(tensor.sum())
        del tensor, array
    assert [int(s) for s in sums] == [value * n for value in range(4)]
    assert way.pool.made == 1


def test_experience_is_the_hosts(monkeypatch):
    run = rollout(GPU)
    there = DeviceCollector(run, KEYS[0], 64, 50, torch_device(GPU))
    here = DeviceCollector(run, KEYS[0], 64, 50)
    for number in (0, 1, 2):
        seen, wanted = (c.collect(POLICY, number, 0.5) for c in (there, here))
        assert seen.reward.is_cuda and seen.portfolio.is_cuda
        assert isinstance(wanted.reward, np.ndarray)
        assert digest(seen) == digest(wanted)
    assert host(seen.portfolio).shape == wanted.portfolio.shape
