"""An actor on disk: exact, checked, all or nothing."""

import pytest
import torch

from backtest.agent import tensor_file
from backtest.agent.skill_file import KIND, VERSION
from backtest.config import Network
from backtest.errors import StoreError
from tests.backtest.agent.skilled import BANK, SIZES, actor, mean_loss, network, skilled, states

STATE = states(network())


def lived_in():
    a = skilled(STATE)
    a.enable(task=True, step=True)
    a.set_mode("online")
    a.set_online_direction_update(True)
    a.alpha["step"] = 0.3
    for seed in range(3):
        live(a, seed)
    return a


def live(a, seed):
    logits = a.logits(states(a.network, seed=seed), a.head())
    mean_loss(logits).backward()
    a.update(mean_loss)
    a.step_utility(0.5)
    return logits.detach().numpy().tobytes()


def contents(a):
    return {
        **{name: bank.content_hash() for name, bank in a.banks.items()},
        "network": tensor_file.content_hash(a.network.numpy_state()),
        "support": a.network.support.numpy().tobytes(),
        "settings": (dict(a.enabled), dict(a.alpha), a.online_direction, a.collected_on),
    }


@pytest.fixture
def saved(tmp_path):
    a, path = lived_in(), tmp_path / "actor.safetensors"
    a.save(path)
    return a, path


def test_a_round_trip_is_exact_and_continues_as_if_not_stopped(saved):
    a, path = saved
    again = actor(seed=8)
    again.network.set_range(9.0)
    again.load(path)
    assert contents(again) == contents(a)
    assert again.mode == "disabled" and again.weight_hash == a.weight_hash
    again.set_mode("online")
    for seed in range(3, 6):
        assert live(again, seed) == live(a, seed)
    assert contents(again) == contents(a)


def test_loading_keeps_the_parameters_in_place(saved):
    again = actor(seed=8)
    places = [p.data_ptr() for p in again.network.parameters()]
    again.load(saved[1])
    assert [p.data_ptr() for p in again.network.parameters()] == places


def refused(path, text, **arguments):
    other = skilled(STATE, seed=8) if not arguments else actor(seed=8, **arguments)
    before = contents(other)
    with pytest.raises(StoreError, match=text):
        other.load(path)
    assert contents(other) == before


@pytest.mark.parametrize("keep", [0, 8, 500, -1])
def test_truncated(saved, keep):
    _, path = saved
    path.write_bytes(path.read_bytes()[:keep])
    refused(path, "truncated")


def test_other_sizes(saved):
    sizes = Network(**{**SIZES.model_dump(), "latent": 6})
    refused(saved[1], "an actor of network", sizes=sizes)
    refused(
        saved[1], "task bank has other parameters", section=BANK.model_copy(update={"slots": 5})
    )


def rewrite(path, change, version=VERSION):
    arrays, metadata = tensor_file.read(path, KIND, VERSION)
    change(arrays, metadata)
    tensor_file.write(path, KIND, version, arrays, metadata)


def test_another_version(saved):
    rewrite(saved[1], lambda a, m: None, VERSION + 1)
    refused(saved[1], f"version {VERSION + 1}, this release reads {VERSION}")


def test_another_dimension(saved):
    def cut(arrays, metadata):
        arrays["step.keys"] = arrays["step.keys"][:, :-1]

    rewrite(saved[1], cut)
    refused(saved[1], r"step: keys is float32\[4, 23\], this bank has float32\[4, 24\]")


def test_weights_that_are_not_those_recorded(saved):
    def change(arrays, metadata):
        arrays["network.first.bias"] = arrays["network.first.bias"] + 1

    rewrite(saved[1], change)
    refused(saved[1], "do not fold to the recorded hash")


def test_missing_parameters(saved):
    rewrite(saved[1], lambda arrays, metadata: arrays.pop("support"))
    refused(saved[1], "parameters missing")
    rewrite(saved[1], lambda arrays, metadata: arrays.pop("network.first.bias"))
    refused(saved[1], "parameters missing")


def test_skills_of_other_weights_cannot_be_used_after_loading(saved, tmp_path):
    a, _ = saved
    with torch.no_grad():
        a.network.first.bias += 1
    a.save(tmp_path / "stale.safetensors")
    again = actor(seed=8)
    again.load(tmp_path / "stale.safetensors")
    with pytest.raises(StoreError, match="were collected on weights"):
        again.set_mode("inference")


def test_the_hash_is_that_of_the_policy():
    net = network()
    net.set_range(1.2345678901)
    a = actor()
    a.network.set_range(1.2345678901)
    assert a.weight_hash == net.weights(1.2345678901).weight_hash
