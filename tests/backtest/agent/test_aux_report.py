"""The quality report of the direction forecast, and its control."""

from dataclasses import replace

import numpy as np
import pytest

from backtest.agent.aux_head import fit
from backtest.agent.aux_report import NAMES, auc, quality
from backtest.config import Aux

SMALL = Aux(horizon=3, hidden=4, updates=30, batch=32)


def case():
    """Return rows whose label is mostly the sign of feature 0, and their labels."""
    rng = np.random.default_rng(4)
    states = rng.normal(0, 1, (1000, 115)).astype(np.float32)
    target = (states[:, 0] + rng.normal(0, 0.5, 1000) > 0).astype(np.float32)
    target[-3:] = np.nan
    return states, target


class TestQuality:
    def test_it_finds_what_is_there_and_the_control_does_not(self):
        found = quality(fit(*case(), Aux(horizon=3, hidden=8, updates=200, batch=16), seed=1))
        assert found["aux_rows"] == 797  # of 800 out-of-fold rows 3 have no label
        assert found["aux_auc"] > 0.65
        assert found["aux_control_fails"] == 1
        assert abs(found["aux_shuffled_auc"] - 0.5) < 4 * found["aux_auc_error"]
        assert abs(found["aux_mean"]) < 0.2 and found["aux_sd"] > 0.03
        assert found["aux_up"] == pytest.approx(0.5, abs=0.05) and found["aux_tie"] == 0

    def test_a_control_that_sees_its_labels_is_caught(self):
        fitted = fit(*case(), SMALL)
        seen = np.where(np.isnan(fitted.shuffled_labels), 0, fitted.shuffled_labels)
        leaky = replace(fitted, shuffled=seen)
        assert quality(leaky)["aux_control_fails"] == 0

    def test_on_noise_both_are_chance(self):
        rng = np.random.default_rng(8)
        states = rng.normal(0, 1, (1500, 115)).astype(np.float32)
        target = rng.integers(0, 2, 1500).astype(np.float32)
        found = quality(fit(states, target, SMALL))
        for name in ("aux_auc", "aux_shuffled_auc"):
            assert abs(found[name] - 0.5) < 4 * found["aux_auc_error"]


class TestAuc:
    def test_by_hand(self):
        # ones 3, 2; zeros 2, 1: pairs 3>2, 3>1, 2=2, 2>1 -> 3.5 of 4
        value, error = auc(np.float32([3, 2, 2, 1, 9]), np.float32([1, 1, 0, 0, 0.5]))
        assert value == 3.5 / 4
        assert error == pytest.approx(np.sqrt(5 / (12 * 4)))

    def test_pairs(self):
        rng = np.random.default_rng(0)
        score = rng.integers(0, 9, 60).astype(np.float32)
        label = rng.integers(0, 2, 60).astype(np.float32)
        up, down = score[label == 1], score[label == 0]
        pairs = (up[:, None] > down) + 0.5 * (up[:, None] == down)
        assert auc(score, label)[0] == pytest.approx(pairs.mean(), rel=1e-14)

    def test_one_class_has_none(self):
        assert auc(np.float32([1, 2]), np.float32([1, 1])) == (None, None)
        assert auc(np.float32([1, 2]), np.float32([0.5, 0.5])) == (None, None)


def test_a_silent_head_has_the_auc_of_a_coin():
    states, target = case()
    found = quality(fit(states[:20], target[:20], SMALL))
    assert found["aux_auc"] == 0.5 and found["aux_sd"] == 0
    assert tuple(found) == NAMES


def test_without_labels_nothing_is_defined():
    states, target = case()
    found = quality(fit(states[:3], target[-3:], SMALL))
    assert found.pop("aux_rows") == 0
    assert set(found.values()) == {None} and len(found) == len(NAMES) - 1
