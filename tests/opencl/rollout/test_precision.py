"""Which kernel collects experience: runtime.precision, the device, and the network."""

import pytest

from backtest.errors import DeviceError
from opencl.devices import all_devices
from opencl.rollout import Shape, collection_variant
from tests.opencl.rollout.scene import NETWORK, shape_of

DEVICE = all_devices()[0]
MLP = Shape((128, 128), 51, ("direction",))


@pytest.fixture(params=[True, False])
def cores(request, monkeypatch):
    monkeypatch.setattr("opencl.rollout.program.has_tensor_cores", lambda device: request.param)
    return request.param


def test_auto_takes_tensor_cores_where_they_are(cores):
    assert collection_variant(DEVICE, MLP, "auto") == ("tensor" if cores else "auto")
    assert collection_variant(DEVICE, MLP, "fp32") == "auto"


def test_bf16_is_refused_where_they_are_missing(cores):
    if cores:
        assert collection_variant(DEVICE, MLP, "bf16") == "tensor"
        return
    with pytest.raises(DeviceError, match=r"precision = bf16: .* no tensor cores .* auto or fp32"):
        collection_variant(DEVICE, MLP, "bf16")


@pytest.mark.parametrize(
    "shape, message",
    [
        (Shape((128, 1280), 51, ("direction",)), "registers"),
        (Shape((2**24, 128), 51, ("direction",)), "local memory"),
    ],
)
def test_a_network_too_large_is_played_in_float32(monkeypatch, shape, message):
    monkeypatch.setattr("opencl.rollout.program.has_tensor_cores", lambda device: True)
    assert collection_variant(DEVICE, shape, "auto") == "auto"
    with pytest.raises(DeviceError, match=message):
        collection_variant(DEVICE, shape, "bf16")


FITS = {"horizon": 6, "latent": 8}


def test_tensor_cores_play_the_scenario_network(monkeypatch):
    monkeypatch.setattr("opencl.rollout.program.has_tensor_cores", lambda device: True)
    for fits in (FITS, {"horizon": 16, "latent": 16}, FITS | {"top_k": 6}):
        shape = shape_of(NETWORK.model_copy(update=fits))
        assert collection_variant(DEVICE, shape, "auto") == "tensor"


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"stack_size": 2}, "no network.stack_size above 1"),
        ({"top_k": 2}, "no network.top_k"),
        ({"latent": 10}, "network.latent 8 or 16"),
        ({"horizon": 17}, "network.horizon up to 16"),
    ],
)
def test_other_scenario_networks_are_played_in_float32(monkeypatch, changed, message):
    monkeypatch.setattr("opencl.rollout.program.has_tensor_cores", lambda device: True)
    shape = shape_of(NETWORK.model_copy(update=FITS | changed))
    assert collection_variant(DEVICE, shape, "auto") == "auto"
    with pytest.raises(DeviceError, match=message):
        collection_variant(DEVICE, shape, "bf16")
