"""The way is chosen by trying; what fails is said, and the next one taken."""

from dataclasses import replace

import numpy as np
import pytest

from backtest.errors import DeviceError
from opencl import exchange as package
from opencl.exchange import Copies, HostMemory, Pinned, exchange, learner, torch_device
from opencl.exchange import way_to_torch as way

choose = exchange.__wrapped__  # without the memory of earlier choices


def test_one_choice_a_process(device):
    found = exchange(device)
    assert found is exchange(device)
    assert isinstance(found, HostMemory if device.kind == "cpu" else Pinned)
    assert found.reason is None


class Forgetful(Copies):
    """Loses a word on the way."""

    way = "forgetful"

    def finish(self, queue, arrays):
        found = super().finish(queue, arrays)
        found["pattern"][-1] += 1
        return found


class OneWay(Copies):
    """Says that memory is shared where it is not."""

    way, shared = "one-way", True


def test_a_way_that_delivers_other_numbers_is_not_taken(device, monkeypatch):
    monkeypatch.setattr(package, "ways", lambda *_: (Forgetful, OneWay, Pinned))
    found = choose(device)
    assert isinstance(found, Pinned)
    assert "no forgetful: the learner sees 1 of 3145729 words" in found.reason
    assert "no one-way: OpenCL sees" in found.reason


def test_a_driver_that_refuses_leaves_copies_and_the_reason(device, monkeypatch):
    import pyopencl as cl

    def refuse(*_, **__):
        raise cl.LogicError("enqueue_map_buffer failed: INVALID_OPERATION")

    monkeypatch.setattr(cl, "enqueue_map_buffer", refuse)
    found = choose(device)
    assert isinstance(found, Copies)
    assert found.reason.startswith("no host memory" if device.kind == "cpu" else "no pinned")
    assert "INVALID_OPERATION" in found.reason


def test_the_learner_is_on_the_cpu_beside_a_cpu(device, monkeypatch):
    assert torch_device(replace(device, nvidia=False)) == "cpu"
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert torch_device(replace(device, nvidia=True)) == "cpu"


def test_the_learner_is_on_the_gpu_of_the_same_identity(device, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    monkeypatch.setattr(learner.external_memory, "uuid", lambda device: b"b")
    monkeypatch.setattr(learner.cuda_driver, "uuid", lambda index: b"abc"[index : index + 1])
    assert torch_device(replace(device, nvidia=True)) == "cuda:1"
    monkeypatch.setattr(learner.external_memory, "uuid", lambda device: b"z")
    assert torch_device(replace(device, nvidia=True)) == "cuda:0"
    with pytest.raises(DeviceError, match="none of torch's 3 CUDA devices"):
        learner.cuda_index(replace(device, nvidia=True))


def test_the_way_as_plain_values(device):
    found = way(device)
    assert found.keys() == {"learner", "way", "reason"}
    assert found["learner"] == torch_device(device)
    assert found["way"] == exchange(device, found["learner"]).way


def test_shared_memory_is_not_for_a_learner_elsewhere(device):
    with pytest.raises(DeviceError, match="of its own, or the learner"):
        HostMemory(device, "cuda:0")
    array = Copies(device).empty((2, 3), np.float32)
    assert array.shape == (2, 3)
