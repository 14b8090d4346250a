import dataclasses

import numpy as np
import pytest

from backtest.agent.checkpoint import KIND, VERSION, Policy, load_policy, save_policy
from backtest.agent.tensor_file import read, write
from backtest.config import Network
from backtest.errors import StoreError
from tests.backtest.agent.test_network import network


def policy(**changes) -> Policy:
    values = {
        "state": network().numpy_state(),
        "network": Network(hidden=(24, 16), atoms=21),
        "branches": ("direction", "magnitude"),
        "v_max": 2.5,
        "center": np.linspace(-1, 1, 42),
        "scale": np.linspace(1, 2, 42) / 3,
        "base": 4567.25,
        "seed": 1,
        "config_hash": "c" * 64,
        "epoch": 2,
        "update": 1500,
        "steps": 98_304,
        "labels": {"instrument": "SP500", "fold_key": "2010-01-01"},
    }
    return Policy(**(values | changes))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "policy.safetensors"


def test_round_trip_is_bit_exact(path):
    saved = policy()
    assert save_policy(path, saved) == saved.weights.weight_hash
    loaded = load_policy(path, network=saved.network, config_hash=saved.config_hash)
    for field in dataclasses.fields(Policy):
        old, new = getattr(saved, field.name), getattr(loaded, field.name)
        if field.name == "state":
            assert all(np.array_equal(old[k], new[k]) for k in old.keys() | new.keys())
        else:
            assert np.array_equal(old, new), field.name
    assert loaded.weights.weight_hash == saved.weights.weight_hash


def test_the_header_says_what_it_is(path):
    save_policy(path, policy())
    _, metadata = read(path, KIND, VERSION)
    assert (metadata["v_min"], metadata["v_max"], metadata["base"]) == (-2.5, 2.5, 4567.25)
    assert metadata["weight_hash"] == policy().weights.weight_hash
    assert metadata["labels"]["instrument"] == "SP500"


def test_another_shape_is_refused_by_name(path):
    save_policy(path, policy())
    with pytest.raises(StoreError, match=r"value.weight is \(21, 16\), expected \(31, 16\)"):
        load_policy(path, network=Network(hidden=(24, 16), atoms=31))


def test_another_experiment_is_refused(path):
    save_policy(path, policy())
    with pytest.raises(StoreError, match="trained under config cccccccccccc, not dddddddddddd"):
        load_policy(path, config_hash="d" * 64)


def test_a_truncated_file_is_refused(path):
    save_policy(path, policy())
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(StoreError, match="truncated"):
        load_policy(path)


def test_another_version_is_refused(path):
    save_policy(path, policy())
    arrays, metadata = read(path, KIND, VERSION)
    write(path, KIND, VERSION + 1, arrays, metadata)
    with pytest.raises(StoreError, match=f"version {VERSION + 1}"):
        load_policy(path)


def test_a_network_of_a_later_release_is_refused(path):
    save_policy(path, policy())
    arrays, metadata = read(path, KIND, VERSION)
    write(path, KIND, VERSION, arrays, metadata | {"network": {"kind": "oracle"}})
    with pytest.raises(StoreError, match="does not know its network"):
        load_policy(path)


def test_weights_that_do_not_fold_to_their_hash_are_refused(path):
    save_policy(path, policy())
    arrays, metadata = read(path, KIND, VERSION)
    write(path, KIND, VERSION, arrays, metadata | {"weight_hash": "0" * 64})
    with pytest.raises(StoreError, match="recorded hash"):
        load_policy(path)


def test_a_failed_save_keeps_the_old_policy(path):
    save_policy(path, policy())
    before = path.read_bytes()
    with pytest.raises(ValueError, match="JSON"):
        save_policy(path, policy(base=float("nan")))
    assert path.read_bytes() == before
