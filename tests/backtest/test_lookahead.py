"""The look-ahead checker passes the shipped features and catches planted leaks."""

import numpy as np
import pytest

from backtest.config import Synthetic
from backtest.data.ingest import ingest
from backtest.lookahead import CANARY, cuts, leaks, perturbed, shipped, with_canary
from backtest.sections import Instrument


@pytest.fixture(scope="module")
def bars(tmp_path_factory):
    settings = Instrument(source="synthetic", bar="1h", synthetic=Synthetic(bars=1500, seed=4))
    return ingest("CANARY", settings, tmp_path_factory.mktemp("lake")).bars


def test_shipped_features_see_nothing(bars):
    assert leaks(bars) == []


def test_the_next_difference_is_caught_by_both_tests(bars):
    found = leaks(bars, with_canary, count=3)
    assert {(leak.column, leak.test) for leak in found} == {
        (CANARY, "prefix"),
        (CANARY, "perturbation"),
    }
    assert all(leak.bar == leak.cut - 1 for leak in found)


@pytest.mark.parametrize(
    "name, leaky",
    [
        ("centred mean", lambda x: np.convolve(x, np.ones(5) / 5, "same")),
        ("whole-sample z-score", lambda x: (x - x.mean()) / x.std()),
        ("backward fill", lambda x: np.append(x[1:], x[-1])),
    ],
)
def test_classic_leaks_are_caught(bars, name, leaky):
    found = leaks(bars, lambda b: {name: leaky(b.close)}, count=3)
    assert {leak.column for leak in found} == {name}


def test_a_causal_column_of_ones_own_passes(bars):
    assert leaks(bars, lambda b: {"sum": np.cumsum(b.close)}, count=3) == []


def test_perturbation_changes_every_later_bar_and_no_earlier_one(bars):
    changed = perturbed(bars, 700)
    assert (changed.close[:700] == bars.close[:700]).all()
    assert (changed.close[700:] != bars.close[700:]).all()
    assert np.isfinite(changed.close).all()


def test_cuts_fall_in_every_phase_of_a_slow_bar():
    assert set(cuts(5000, 25) % 5) == {0, 1, 2, 3, 4}


def test_columns_cover_the_feature_file(bars):
    assert len(shipped(bars)) == 2 + 84
