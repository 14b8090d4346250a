"""Philox against published vectors and a plain-integer version; keys, counters and ranges."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backtest.rng import Stage, hash32, key, philox4x32_10, stream, uniform

WORD = st.integers(0, 2**32 - 1)

# Random123's known answers for philox4x32, 10 rounds: counter, key, block.
KNOWN = [
    (
        "00000000 00000000 00000000 00000000",
        "00000000 00000000",
        "6627e8d5 e169c58d bc57ac4c 9b00dbd8",
    ),
    (
        "ffffffff ffffffff ffffffff ffffffff",
        "ffffffff ffffffff",
        "408f276d 41c83b0e a20bc7c6 6d5451fd",
    ),
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


def words(text: str) -> np.ndarray:
    return np.array([int(word, 16) for word in text.split()], np.uint32)


def plain_philox(counter: list[int], key: list[int]) -> list[int]:
    """One block in Python integers, written from the paper's figure."""
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * c0, 2**32)
        high1, low1 = divmod(0xCD9E8D57 * c2, 2**32)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return [c0, c1, c2, c3]


@pytest.mark.parametrize(("counter", "key_", "block"), KNOWN)
def test_known_answers(counter: str, key_: str, block: str) -> None:
    np.testing.assert_array_equal(philox4x32_10(words(counter), words(key_)), words(block))


def test_known_answers_in_one_call() -> None:
    counters, keys, blocks = (np.stack([words(row[i]) for row in KNOWN]) for i in range(3))
    np.testing.assert_array_equal(philox4x32_10(counters, keys), blocks)


@settings(max_examples=100, deadline=None)
@given(st.lists(WORD, min_size=4, max_size=4), st.lists(WORD, min_size=2, max_size=2))
def test_equals_plain_integers(counter: list[int], key_: list[int]) -> None:
    got = philox4x32_10(np.array(counter, np.uint32), np.array(key_, np.uint32))
    assert got.dtype == np.uint32
    assert got.tolist() == plain_philox(counter, key_)


def test_uniform_of_the_first_vector() -> None:
    u = uniform(np.zeros(2, np.uint32), Stage.COLLECT, 0, 0, 0, 0)
    assert u.dtype == np.float32
    assert u == 0x6627E8 / 2**24  # word 0 is 6627e8d5: its upper 24 bits


def test_each_argument_has_its_place_in_the_counter() -> None:
    k = key(3, "ES", "fold")
    x = plain_philox([Stage.AUDIT * 2**16 + 7, 11, 13, 17], k.tolist())[0]
    assert uniform(k, Stage.AUDIT, 7, 11, 13, 17) == (x >> 8) / 2**24
    assert stream(Stage.AUDIT, 7) == (Stage.AUDIT << 16) + 7


def test_a_number_does_not_depend_on_the_batch() -> None:
    k = key(1, "ES", "fold")
    episode, t = np.arange(5)[:, None], np.arange(7)
    batch = uniform(k, Stage.COLLECT, 2, episode, t, 1)
    assert batch.shape == (5, 7)
    alone = [[uniform(k, Stage.COLLECT, 2, e, s, 1) for s in range(7)] for e in range(5)]
    np.testing.assert_array_equal(batch, np.array(alone))


def test_keys_broadcast() -> None:
    keys = np.stack([key(seed, "ES", "fold") for seed in (0, 1, 2**32 - 1)])
    batch = uniform(keys[:, None, :], Stage.START, 0, np.arange(4), 0, 0)
    assert batch.shape == (3, 4)
    np.testing.assert_array_equal(batch[2], uniform(keys[2], Stage.START, 0, np.arange(4), 0, 0))


def test_hash32_of_a_published_digest() -> None:
    assert hash32("abc") == 0xBF1678BA  # SHA-256("abc") begins ba 78 16 bf: little endian
    assert hash32("é") == int.from_bytes(bytes.fromhex("4a99557e"), "little")  # of c3 a9


def test_key_joins_instrument_and_fold() -> None:
    k = key(42, "ES", "ES:10:20")
    assert k.dtype == np.uint32
    assert k.tolist() == [42, hash32("ES|ES:10:20")]


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_refuses_a_seed_that_is_not_32_bits(seed: int) -> None:
    with pytest.raises(ValueError, match=rf"seed {seed}"):
        key(seed, "ES", "fold")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("round", 2**16),
        ("round", -1),
        ("stage", 2**16),
        ("episode", 2**32),
        ("t", -1),
        ("draw", np.array([0, -5])),
    ],
)
def test_refuses_a_counter_word_out_of_range(name: str, value: int) -> None:
    place = {"stage": 0, "round": 0, "episode": 0, "t": 0, "draw": 0} | {name: value}
    with pytest.raises(ValueError, match=name):
        uniform(key(0, "ES", "fold"), **place)


def test_refuses_a_counter_word_that_is_no_integer() -> None:
    with pytest.raises(ValueError, match="episode must be integer"):
        uniform(key(0, "ES", "fold"), 0, 0, 1.5, 0, 0)


def test_ends_of_the_ranges_are_allowed() -> None:
    top = 2**32 - 1
    u = uniform(key(top, "", ""), 2**16 - 1, 2**16 - 1, top, top, np.array([0, top]))
    assert ((u >= 0) & (u < 1)).all()


def test_no_rows_give_no_numbers() -> None:
    assert uniform(key(0, "ES", "fold"), 0, 0, np.zeros(0, np.int64), 0, 0).shape == (0,)


@pytest.mark.parametrize("axis", ["episode", "t", "draw", "round"])
def test_neighbouring_counters_are_independent_and_flat(axis: str) -> None:
    n = 2**16
    place = {"stage": 0, "round": 0, "episode": 0, "t": 0, "draw": 0} | {axis: np.arange(n)}
    u = uniform(key(5, "ES", "fold"), **place).astype(float)
    counts = np.histogram(u, 64, (0, 1))[0]
    chi2 = ((counts - n / 64) ** 2 / (n / 64)).sum()
    assert chi2 < 63 + 5 * np.sqrt(2 * 63)
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 5 / np.sqrt(n)


def test_scaled_to_n_stays_below_n() -> None:
    largest = np.float32(1 - 2**-24)
    n = np.unique(np.r_[1:5000, 2 ** np.arange(25) - 1, 2 ** np.arange(1, 24) + 1])
    n = n[(n > 0) & (n < 2**24)].astype(np.float32)
    assert ((largest * n).astype(np.int64) == n.astype(np.int64) - 1).all()


def test_stages_are_distinct_and_fixed() -> None:
    assert (Stage.COLLECT, Stage.START, Stage.VALIDATE, Stage.TEST) == (0, 1, 2, 3)
    assert len({stage.value for stage in Stage}) == len(Stage)
