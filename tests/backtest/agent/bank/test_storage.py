"""Files and state dicts: exact round trips, refusals that change nothing."""

import numpy as np
import pytest

from backtest.agent import tensor_file
from backtest.agent.bank import Bank
from backtest.agent.bank.storage import KIND, VERSION
from backtest.errors import ConfigError, StoreError
from tests.backtest.agent.bank.plain import plain, stream

HASH = "a" * 64


def lived_in(**parameters):
    """A bank with slots, candidates, cells, uses and a random history."""
    rng = np.random.default_rng(9)
    bank = plain(slots=4, dim=70, min_confirmations=2, aggregate=2, **parameters)
    bank.fit_context(stream(rng, 100, 70)[0], rng)
    h, g = stream(rng, 120, 70, centres=5, noise=0.8)
    bank.update_rows(h, g)
    for x in h[:20]:
        bank.retrieve(x, mark=True)
    return bank


@pytest.fixture
def saved(tmp_path):
    bank, path = lived_in(), tmp_path / "bank.safetensors"
    bank.save(path, HASH)
    return bank, path


def test_a_round_trip_is_exact(saved):
    bank, path = saved
    again = Bank.load(path, HASH)
    assert again.content_hash() == bank.content_hash()
    assert again.section == bank.section and again.counters == bank.counters
    assert (again.slots, again.dim, again.key_dim) == (4, 70, 70)


def test_saved_loaded_and_continued_is_the_same_as_not_stopping(saved):
    bank, path = saved
    again = Bank.load(path, HASH, slots=4, dim=70, key_dim=70)
    copy = plain(slots=4, dim=70, min_confirmations=2, aggregate=2)
    copy.load_state_dict(bank.state_dict())
    h, g = stream(np.random.default_rng(10), 200, 70, centres=9, noise=0.8)
    results = [b.update_rows(h, g) for b in (bank, again, copy)]
    for b in (bank, again, copy):
        b.close_collection()
        b.retrieve(h[0], mark=True)
    for other, result in zip((again, copy), results[1:], strict=True):
        assert np.array_equal(result, results[0])
        assert other.content_hash() == bank.content_hash()


def test_a_state_dict_is_a_copy():
    bank = lived_in()
    before = bank.content_hash()
    for array in bank.state_dict().values():
        array[...] = 0
    assert bank.content_hash() == before
    arrays = bank.state_dict()
    bank.load_state_dict(arrays)
    arrays["keys"][:] = 7
    assert bank.content_hash() == before


@pytest.mark.parametrize("keep", [0, 9, 200, -1])
def test_a_truncated_file_is_refused(saved, keep):
    _, path = saved
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(StoreError, match=r"bank\.safetensors: truncated"):
        Bank.load(path, HASH)


def test_a_damaged_or_missing_file_is_refused(saved):
    _, path = saved
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match="do not match their hash"):
        Bank.load(path, HASH)
    path.unlink()
    with pytest.raises(StoreError, match="no such file"):
        Bank.load(path, HASH)


def test_other_weights_are_refused(saved):
    with pytest.raises(StoreError, match="collected on weights aaaaaaaaaaaa, not bbbbbbbbbbbb"):
        Bank.load(saved[1], "b" * 64)


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ({"dim": 71}, "a bank of dim 70, not 71"),
        ({"slots": 5, "key_dim": 3}, "slots 4, not 5; key_dim 70, not 3"),
    ],
)
def test_other_sizes_are_refused(saved, wanted, text):
    with pytest.raises(StoreError, match=text):
        Bank.load(saved[1], HASH, **wanted)


def test_another_version_is_refused(saved):
    _, path = saved
    arrays, metadata = tensor_file.read(path, KIND, VERSION)
    tensor_file.write(path, KIND, VERSION + 1, arrays, metadata)
    with pytest.raises(StoreError, match=rf"version {VERSION + 1}, this release reads {VERSION}"):
        Bank.load(path, HASH)


def test_unknown_parameters_in_a_file_are_refused(saved):
    _, path = saved
    arrays, metadata = tensor_file.read(path, KIND, VERSION)
    metadata["parameters"]["novel"] = 1
    tensor_file.write(path, KIND, VERSION, arrays, metadata)
    with pytest.raises(StoreError, match="parameters of another release"):
        Bank.load(path, HASH)


def test_a_file_whose_arrays_contradict_its_sizes_is_refused(saved):
    _, path = saved
    arrays, metadata = tensor_file.read(path, KIND, VERSION)
    metadata["dims"]["slots"] = 5
    tensor_file.write(path, KIND, VERSION, arrays, metadata)
    with pytest.raises(StoreError, match=r"is \w+\[4.*\], this bank has \w+\[5"):
        Bank.load(path, HASH)


def wrong_shape(arrays):
    arrays["keys"] = arrays["keys"][:, :-1]


def wrong_type(arrays):
    arrays["age"] = arrays["age"].astype(np.int64)


def missing(arrays):
    del arrays["utility"]


def unknown(arrays):
    arrays["novel"] = np.zeros(1)


def not_finite(arrays):
    arrays["scale"][0] = np.nan


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (wrong_shape, r"keys is float32\[4, 69\], this bank has float32\[4, 70\]"),
        (wrong_type, "age is int64"),
        (missing, "missing or unknown: utility"),
        (unknown, "missing or unknown: novel"),
        (not_finite, "scale is not finite"),
    ],
)
def test_a_refused_state_dict_changes_nothing(damage, text):
    bank = lived_in()
    before, arrays = bank.content_hash(), lived_in().state_dict()
    damage(arrays)
    with pytest.raises(StoreError, match=text):
        bank.load_state_dict(arrays)
    assert bank.content_hash() == before


@pytest.mark.parametrize(
    "wrong", [{"novel": 1}, {"beta_key": 0.0}, {"candidate_pool": 0}, {"representation": "half"}]
)
def test_parameters_are_checked(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        plain(**wrong)
    with pytest.raises(ConfigError, match="dim = 0"):
        plain(dim=0)
