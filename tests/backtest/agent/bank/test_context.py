"""The first look at contexts: centre, quantiles, automatic threshold."""

import numpy as np
import pytest

from backtest.agent.bank.state import QUANTILES
from tests.backtest.agent.bank.plain import plain, vector

AUTO = {"similarity_threshold": "auto", "centering": "mean"}
E0 = np.eye(4, dtype=np.float32)[0]


def contexts(rows=500, dim=4, offset=3.0, seed=8):
    rng = np.random.default_rng(seed)
    return (offset + rng.standard_normal((rows, dim))).astype(np.float32)


def test_until_then_the_centre_is_zero_and_auto_means_0_7():
    bank = plain(**AUTO)
    assert not bank.state.center.any() and bank.state.threshold == np.float32(0.7)
    assert not bank.state.quantiles.any() and bank.state.fitted == 0


def test_the_centre_is_the_mean_and_the_threshold_a_quantile():
    h, bank = contexts(), plain(**AUTO)
    bank.fit_context(h, np.random.default_rng(0))
    assert np.allclose(bank.state.center, h.mean(0), atol=1e-6)
    x = h - h.mean(0)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    every = (unit @ unit.T)[np.triu_indices(len(h), 1)]
    assert np.allclose(bank.state.quantiles, np.quantile(every, QUANTILES), atol=0.05)
    assert bank.state.threshold == bank.state.quantiles[QUANTILES.index(0.9)]
    assert abs(bank.state.quantiles[2]) < 0.1  # centred contexts: a median near 0


def test_without_centring_offset_contexts_all_look_alike():
    bank = plain(similarity_threshold="auto", centering="none")
    bank.fit_context(contexts(), np.random.default_rng(0))
    assert not bank.state.center.any() and bank.state.quantiles[0] > 0.6


def test_a_number_stays_the_threshold():
    bank = plain(similarity_threshold=0.25, centering="mean")
    bank.fit_context(contexts(), np.random.default_rng(0))
    assert bank.state.threshold == 0.25 and bank.state.quantiles.any()


def test_the_same_draws_give_the_same_bytes():
    hashes = set()
    for _ in range(2):
        bank = plain(**AUTO)
        bank.fit_context(contexts(), np.random.default_rng(1))
        hashes.add(bank.content_hash())
    assert len(hashes) == 1


def test_rows_that_are_not_finite_are_left_out():
    h, one, two = contexts(), plain(**AUTO), plain(**AUTO)
    one.fit_context(h, np.random.default_rng(0))
    two.fit_context(np.insert(h, 7, np.nan, axis=0), np.random.default_rng(0))
    assert np.array_equal(one.state.center, two.state.center)
    assert one.state.threshold == two.state.threshold
    assert two.counters["non_finite"] == 1


def test_equal_contexts_have_no_cosines():
    bank = plain(**AUTO)
    bank.fit_context(np.ones((5, 4), np.float32), np.random.default_rng(0))
    assert bank.state.threshold == np.float32(0.7) and not bank.state.quantiles.any()


def test_a_bank_with_keys_keeps_its_centre():
    bank = plain(**AUTO)
    bank.update(E0, E0)
    with pytest.raises(ValueError, match="already holds keys"):
        bank.fit_context(contexts(), np.random.default_rng(0))


def test_too_few_or_other_contexts_are_refused():
    bank = plain(**AUTO)
    with pytest.raises(ValueError, match="1 finite contexts of 2"):
        bank.fit_context(np.stack([E0, E0 * np.nan]), np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"contexts has shape \[500, 5\], not \[any, 4\]"):
        bank.fit_context(contexts(dim=5), np.random.default_rng(0))


def test_everything_after_it_works_on_centred_contexts():
    bank = plain(**AUTO, min_confirmations=1)
    bank.fit_context(contexts(), np.random.default_rng(0))
    h = bank.state.center + vector(2, 0, 0, 0)
    bank.update(h, E0)
    assert np.array_equal(bank.state.keys[0], h - bank.state.center)
    assert bank.retrieve(h)[0] == 0
    assert bank.retrieve(bank.state.center - vector(2, 0, 0, 0))[0] == -1
    bank.close_collection()
    assert np.isclose(bank.state.h_ref, np.linalg.norm(h))  # of the hidden state itself
