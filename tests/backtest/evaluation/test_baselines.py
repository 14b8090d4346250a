"""Baselines: their definitions, causality, and the turnover of the random draws."""

import numpy as np
import pytest

from backtest import rng
from backtest.evaluation.baselines import (
    CHANGE,
    DETERMINISTIC,
    deterministic_targets,
    fresh_probability,
    random_targets,
)
from tests.tables import rough_table, table_of

KEY = rng.key(0, "SP500", "2011-01-01")


def turnover(targets, size):
    """Mean units traded a step, by draw, in full positions."""
    return np.abs(np.diff(targets, axis=0, prepend=0)).mean(0) / size


def test_definitions():
    table = table_of(
        np.full(5, 100.0),
        adx=[25, 26, 26, 26, 60],
        plus_di_14=[0.9, 0.6, 0.4, 0.5, 0.3],
        minus_di_14=[0.1, 0.4, 0.6, 0.5, 0.2],
    )
    targets = deterministic_targets(table, 15.0)
    assert targets.dtype == np.float32
    found = dict(zip(DETERMINISTIC, targets.T.tolist(), strict=True))
    assert found["flat"] == [0] * 5
    assert found["buy_and_hold"] == [15] * 5
    assert found["inverse"] == [-15] * 5
    # ADX 25 is no trend; equal directional movement has no direction
    assert found["adx_trend"] == [0, 15, -15, 0, 15]


def test_no_target_reads_a_later_row():
    table = rough_table(60)
    plain = deterministic_targets(table, 1.0)
    for bar in (1, 20, 59):
        future = rough_table(60)
        future.market[bar:] *= -3
        np.testing.assert_array_equal(deterministic_targets(future, 1.0)[:bar], plain[:bar])


@pytest.mark.parametrize("wanted", [0.004, 0.02, 0.1, 0.5, 0.85])
@pytest.mark.parametrize("n", [20, 252])
def test_random_draws_trade_as_much_as_the_policy(n, wanted):
    # a policy that trades `wanted` of its size a step, from one round trip a year upwards
    draws = 4000
    size = 15.0
    found = turnover(random_targets(n, draws, wanted * size, size, KEY), size)
    error = found.std(ddof=1) / np.sqrt(draws)
    assert abs(found.mean() - wanted) < 4 * error
    assert error < 0.04 * wanted + 1e-3  # so that the line above says something


def test_turnover_beyond_a_fresh_draw_every_step_is_capped():
    found = turnover(random_targets(500, 200, 2.0, 1.0, KEY), 1.0)
    assert found.mean() == pytest.approx(CHANGE, rel=0.02)
    assert fresh_probability(500, 2.0) == pytest.approx(1)


def test_a_policy_that_never_traded_has_flat_draws():
    assert not random_targets(100, 8, 0.0, 1.0, KEY).any()


def test_draws_do_not_depend_on_how_many_are_made():
    many = random_targets(100, 16, 0.3, 2.0, KEY)
    np.testing.assert_array_equal(random_targets(100, 4, 0.3, 2.0, KEY), many[:, :4])
    assert set(np.unique(many)) == {-2, 0, 2}
    assert len(np.unique(many, axis=1).T) == 16  # all of them differ
