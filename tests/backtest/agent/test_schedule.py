import pytest

from backtest.agent import schedule
from backtest.config import Learner


def test_rounds_tile_the_updates():
    settings = Learner(updates=800, epochs=3)
    rounds = [schedule.round_updates(settings, e) for e in range(3)]
    assert rounds == [(0, 266), (266, 533), (533, 800)]
    assert schedule.round_updates(Learner(updates=2, epochs=3), 0) == (0, 0)


def test_epsilon_is_linear_over_its_share_of_the_updates():
    settings = Learner(updates=1000, epsilon_decay=0.4)
    assert schedule.epsilon(settings, 0) == 1
    assert schedule.epsilon(settings, 200) == pytest.approx(0.525)
    assert schedule.epsilon(settings, 400) == pytest.approx(0.05)
    assert schedule.epsilon(settings, 999) == pytest.approx(0.05)


def test_a_round_explores_with_the_value_at_its_first_update():
    settings = Learner(updates=1500, epochs=3)
    assert schedule.round_epsilon(settings, 0) == 1
    assert schedule.round_epsilon(settings, 1) == pytest.approx(1 - 0.95 * 500 / 600)
    assert schedule.round_epsilon(settings, 2) == pytest.approx(0.05)


def test_the_first_round_explores_fully_whatever_epsilon_start_says():
    settings = Learner(updates=1000, epochs=5, epsilon_start=0.5)
    assert schedule.round_epsilon(settings, 0) == 1
    assert schedule.round_epsilon(settings, 1) == pytest.approx(0.275)


def test_beta_rises_to_one():
    settings = Learner(updates=100, per_beta=0.4)
    assert [schedule.beta(settings, u) for u in (0, 50, 100)] == pytest.approx([0.4, 0.7, 1.0])


@pytest.mark.parametrize(
    ("new", "best", "result"),
    [
        (1.0, None, True),
        (None, None, False),
        (None, -5.0, False),
        (1.0, 1.0, False),
        (1.1, 1, True),
    ],
)
def test_better_counts_none_as_lowest_and_ties_as_no_better(new, best, result):
    assert schedule.better(new, best) is result


def test_patience_counts_epochs_since_the_best():
    settings = Learner(patience=2)
    assert not schedule.exhausted(settings, 4, 3)
    assert schedule.exhausted(settings, 5, 3)
