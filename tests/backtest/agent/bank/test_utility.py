"""Influence and the three utility rules by hand."""

import numpy as np
import pytest

from backtest.agent.bank import SlotState
from backtest.agent.bank.utility import influence_of, paired_delta, solo_interval
from tests.backtest.agent.bank.plain import plain, put

E = np.eye(4, dtype=np.float32)


def bank_of(rule, **parameters):
    bank = plain(slots=4, utility_rule=rule, **parameters)
    for slot in range(4):
        put(bank, slot, E[slot], E[3])
    return bank


def test_paired_delta_by_hand():
    without = np.array([1.0, 3, 1, 3, 1, 3, 1, 3])
    deviation = np.sqrt(8 / 7)  # mean 2, eight squares of 1, ddof 1
    with_skills = without + np.array([0, 0.5, -0.5, 1, 9, -9, 0, 0])
    found = paired_delta(with_skills, without)
    assert found.dtype == np.float32
    want = [0, 0.5 / deviation, -0.5 / deviation, 1 / deviation, 1, -1, 0, 0]
    assert np.allclose(found, want)
    both = paired_delta(np.stack([with_skills, without]), without)
    assert both.shape == (2, 8) and (both[1] == 0).all()


def test_no_delta_without_a_batch_or_a_deviation():
    j = np.arange(8.0)
    assert paired_delta(j, j) is not None
    assert paired_delta(j[:7], j[:7]) is None
    assert paired_delta(j, np.full(8, 5.0)) is None
    assert paired_delta(np.full(8, np.nan), j) is None


def test_the_trapezoid_is_exact_on_a_quadratic_and_the_end_point_is_not():
    """L = |h - target|^2/2, g = target - h, and d the perfect correction: the gain is |d|^2/2."""
    rng = np.random.default_rng(6)
    d = rng.standard_normal((5, 70)).astype(np.float32)
    gain = 0.5 * (d.astype(np.float64) ** 2).sum(1)
    assert np.allclose(influence_of(d, 0 * d, d), gain, rtol=1e-5)
    assert np.allclose(influence_of(d, 0 * d, d, trapezoid=False), 0)
    # half of the way: 3/4 of the gain
    assert np.allclose(influence_of(d, d / 2, d / 2), 0.75 * gain, rtol=1e-5)


def test_participation_by_hand():
    bank = bank_of("participation")
    bank.state.state[2] = SlotState.INACTIVE
    bank.state.utility[:] = [0.5, 0.2, 0.1, 0.3]
    for slot, influence in ((0, 1.0), (0, 2.0), (1, -1.0), (2, 4.0)):
        bank.add_influence(slot, influence)
    bank.end_episode(-0.5)
    # shares 3/8, 1/8, 4/8 of sum|I| = 8; beta 0.5
    want = [0.5 + 0.1875 * -1.0, 0.2 + 0.0625 * -0.7, 0.1 + 0.25 * -0.6, 0.3]
    assert np.allclose(bank.state.utility, want)
    assert not bank.state.influence.any()
    assert bank.counters["utility_updates"] == 1


def test_original_by_hand():
    bank = bank_of("original")
    bank.state.utility[:] = [0.5, 0.2, 0.1, 0.3]
    for slot, influence in ((0, 3.0), (1, -1.0), (2, 1.0)):
        bank.add_influence(slot, influence)
    bank.end_episode(0.8)
    # shares 3/4 and 1/4 of the positive sum 4; the harmful slot is never blamed
    want = [0.25 + 0.5 * 0.6, 0.2, 0.05 + 0.5 * 0.2, 0.3]
    assert np.allclose(bank.state.utility, want)


def test_the_original_rule_converges_to_a_share():
    bank = bank_of("original")
    for _ in range(60):
        for slot in range(4):
            bank.add_influence(slot, 1.0)
        bank.end_episode(1.0)
    assert np.allclose(bank.state.utility, 0.25)


def test_solo_episodes_judge_the_slot_that_acted():
    bank = bank_of("solo")
    bank.add_influence(2, 0.1)
    bank.end_episode(0.5)
    assert np.allclose(bank.state.utility, [0, 0, 0.25, 0])


@pytest.mark.parametrize("rule", ["solo", "participation", "original"])
def test_tiny_or_unusable_deltas_only_clear_the_influence(rule):
    for delta in (0.0, 1e-13, -1e-13, np.nan, np.inf):
        bank = bank_of(rule)
        bank.state.utility[:] = 0.5
        bank.add_influence(1, 1.0)
        bank.end_episode(delta)
        assert (bank.state.utility == 0.5).all() and not bank.state.influence.any()
        assert bank.counters["utility_skips"] == 1


@pytest.mark.parametrize("rule", ["solo", "participation", "original"])
def test_no_influence_no_utility(rule):
    bank = bank_of(rule)
    bank.state.utility[:] = 0.5
    bank.end_episode(1.0)
    assert (bank.state.utility == 0.5).all() and bank.counters["utility_skips"] == 1


def test_influence_that_is_not_finite_is_refused_and_can_be_forgotten():
    bank = bank_of("participation")
    bank.add_influence(0, np.nan)
    bank.add_influence(0, 1e300)  # overflows float32
    assert bank.state.influence[0] == 0 and bank.counters["non_finite"] == 2
    bank.add_influence(0, 1.0)
    bank.reset_influence()
    assert not bank.state.influence.any()
    with pytest.raises(ValueError, match="slot 4 is not one of the 4"):
        bank.add_influence(4, 1.0)


def test_a_solo_round_moves_utilities_and_retires_what_surely_hurts():
    rng = np.random.default_rng(7)
    bank = bank_of("solo")
    bank.state.used[3] = 0
    deltas = np.stack(
        [
            0.3 + 0.1 * rng.standard_normal(64),  # pays
            -0.3 + 0.1 * rng.standard_normal(64),  # hurts
            -0.01 + 0.5 * rng.standard_normal(64),  # nobody knows
            np.full(64, 0.9),  # no skill
        ]
    ).astype(np.float32)
    bank.solo_round(deltas)
    assert np.allclose(bank.state.utility[:3], 0.5 * deltas.mean(1)[:3], atol=1e-6)
    assert bank.state.utility[3] == 0
    assert bank.state.state.tolist() == [3, 4, 3, 3]
    assert bank.counters["utility_updates"] == 3


def test_a_solo_round_leaves_alone_what_it_cannot_judge():
    bank = bank_of("solo")
    bank.state.utility[:] = 0.5
    deltas = np.zeros((4, 64), np.float32)  # never retrieved: paired runs are equal
    deltas[1, 5] = np.nan
    bank.solo_round(deltas)
    bank.solo_round(-np.ones((4, 7), np.float32))  # fewer than 8 episodes
    assert (bank.state.utility == 0.5).all() and (bank.state.state == 3).all()
    assert bank.counters["utility_skips"] == 8


def test_the_solo_interval_is_students():
    # mean 2, sd sqrt(8/7), t(7 degrees, 97.5 %) = 2.364624
    deltas = np.array([[1, 3, 1, 3, 1, 3, 1, 3]], np.float32)
    means, upper = solo_interval(deltas)
    assert means[0] == 2
    assert np.isclose(upper[0], 2 + 2.364624 * np.sqrt(8 / 7) / np.sqrt(8))
