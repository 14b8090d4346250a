"""Intervals on numbers worked by hand, against scipy, and against theory."""

import math

import numpy as np
import pytest
from scipy import stats

from backtest import rng
from backtest.errors import ConfigError
from backtest.evaluation.intervals import (
    Interval,
    block_length,
    bounds,
    interquartile_mean,
    mean_difference,
    mean_interval,
    probability_of_improvement,
    sharpe_interval,
    stratified_interval,
)

KEY = rng.key(0, "SP500", "2011-01-01")


def ar1(phi: float, n: int, seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(0, 0.01, n)
    series = np.empty(n)
    last = 0.0
    for i, shock in enumerate(noise):
        series[i] = last = phi * last + shock
    return series


def test_sharpe_interval_is_that_of_theory_for_independent_days() -> None:
    returns = np.random.default_rng(3).normal(0.0005, 0.01, 2000)
    found = sharpe_interval(returns, 252, KEY)
    value = returns.mean() / returns.std(ddof=1) * math.sqrt(252)
    assert found.value == pytest.approx(value)
    # Lo 2002: se = sqrt((1 + SR^2 / 2) / n) per day
    error = math.sqrt((1 + value**2 / 252 / 2) / 2000 * 252)
    assert found.n == 2000
    assert found.low == pytest.approx(value - 1.96 * error, abs=0.15 * error)
    assert found.high == pytest.approx(value + 1.96 * error, abs=0.15 * error)


def test_blocks_widen_the_interval_of_dependent_days() -> None:
    returns = ar1(0.5, 2000, seed=4)
    found = sharpe_interval(returns, 252, KEY)
    independent = 2 * 1.96 * math.sqrt(252 / 2000)
    # the variance of the mean grows by (1 + phi) / (1 - phi) = 3
    assert found.high - found.low == pytest.approx(independent * math.sqrt(3), rel=0.2)
    assert block_length(returns) > 3 * block_length(ar1(0.0, 2000, seed=4))


def test_equal_keys_give_equal_intervals() -> None:
    returns = ar1(0.1, 250, seed=5)
    first = sharpe_interval(returns, 252, KEY, resamples=200)
    assert first == sharpe_interval(returns, 252, KEY, resamples=200)
    assert first != sharpe_interval(returns, 252, rng.key(1, "SP500", "2011-01-01"), resamples=200)


def test_a_wider_confidence_gives_a_wider_interval() -> None:
    returns = ar1(0.0, 250, seed=6)
    narrow = sharpe_interval(returns, 252, KEY, confidence=0.5)
    wide = sharpe_interval(returns, 252, KEY, confidence=0.99)
    assert wide.low < narrow.low < narrow.high < wide.high


@pytest.mark.parametrize("returns", [[], [0.01], [0.0] * 50, [0.001] * 50])
def test_no_sharpe_no_interval(returns: list[float]) -> None:
    found = sharpe_interval(np.array(returns), 252, KEY)
    assert found == Interval(None, None, None, len(returns))


@pytest.mark.parametrize("n", [2, 3, 5, 9])
@pytest.mark.filterwarnings("error")
def test_a_few_days_have_a_sharpe_and_perhaps_bounds(n: int) -> None:
    found = sharpe_interval(ar1(0.0, n, seed=7), 252, KEY)
    assert found.value is not None
    assert found.low is None or found.low < found.high


def test_one_trade_in_many_flat_days() -> None:
    returns = np.zeros(250)
    returns[100] = 0.01
    found = sharpe_interval(returns, 252, KEY)
    # a third of the resamples holds no trade and has no Sharpe; the others bound it
    assert found.low is not None
    assert found.low > 0


def test_bounds_need_half_of_the_resamples_and_a_spread() -> None:
    nan = math.nan
    assert bounds(np.array([1.0, 2, nan, nan]), 0.95) == pytest.approx((1.025, 1.975))
    assert bounds(np.array([1.0, nan, nan]), 0.95) == (None, None)
    assert bounds(np.array([2.0, 2, 2]), 0.95) == (None, None)
    assert bounds(np.array([]), 0.95) == (None, None)


@pytest.mark.parametrize("n", range(1, 14))
def test_interquartile_mean_is_scipys_trimmed_mean(n: int) -> None:
    values = np.random.default_rng(n).normal(size=n)
    assert interquartile_mean(values) == pytest.approx(stats.trim_mean(values, 0.25))


def test_interquartile_mean_by_hand() -> None:
    assert interquartile_mean(np.array([100.0, 1, 2, -50])) == 1.5
    assert interquartile_mean(np.array([[9.0, 1, 2, 3], [0, 0, 4, 9]])).tolist() == [2.5, 2]


def test_stratified_interval() -> None:
    scores = np.random.default_rng(8).normal(1.0, 0.5, (10, 8))
    found = stratified_interval(scores, KEY)
    assert found.value == pytest.approx(stats.trim_mean(scores.ravel(), 0.25))
    assert found.n == 80
    assert found.low < found.value < found.high
    # sd of an interquartile mean of 80 normal values: about 1.1 * .5 / sqrt(80)
    assert found.high - found.low == pytest.approx(2 * 1.96 * 1.1 * 0.5 / math.sqrt(80), rel=0.3)


def test_runs_are_resampled_within_their_fold() -> None:
    # folds differ by far more than runs do: only the runs count
    scores = np.array([[1.0, 100.0], [1.1, 100.1], [0.9, 99.9]])
    found = stratified_interval(scores, KEY)
    assert found.value == pytest.approx(50.5)
    assert 50.3 < found.low < found.high < 50.7


def test_undefined_runs_do_not_count() -> None:
    nan = math.nan
    scores = np.array([[1.0, nan, 5.0], [2.0, nan, nan]])
    found = stratified_interval(scores, KEY)
    assert (found.value, found.n) == (pytest.approx(8 / 3), 3)
    assert found.low == pytest.approx(7 / 3)  # 1, 1, 5
    assert found.high == pytest.approx(3)  # 2, 2, 5
    assert stratified_interval(np.full((2, 2), nan), KEY) == Interval(None, None, None, 0)


def test_one_run_or_equal_runs_have_no_bounds() -> None:
    assert stratified_interval(np.array([[1.0, 3.0]]), KEY) == Interval(2.0, None, None, 2)
    assert stratified_interval(np.ones((3, 2)), KEY) == Interval(1.0, None, None, 6)


def test_probability_of_improvement_by_hand() -> None:
    # of nine pairs four are won and one is a tie
    found = probability_of_improvement(np.array([1.0, 2, 3]), np.array([0.0, 2, 4]), KEY)
    assert found.value == pytest.approx(4.5 / 9)
    assert found.low < 0.5 < found.high
    assert found.n == 9


def test_probability_of_improvement_averages_over_folds() -> None:
    x = np.array([[1.0, 5.0], [3.0, 6.0]])  # beats the baseline in half and in all of the runs
    found = probability_of_improvement(x, np.array([[2.0, 4.0]]), KEY)
    assert found.value == pytest.approx(0.75)
    assert (found.low, found.high) == (0.5, 1.0)


def test_the_two_sides_are_resampled_apart() -> None:
    runs = np.array([1.0, 2, 3, 4])
    found = probability_of_improvement(runs, runs, KEY)
    assert found.low < found.value == 0.5 < found.high


def test_winning_every_pair_is_certain() -> None:
    found = probability_of_improvement(np.array([3.0, 4]), np.array([1.0, 2]), KEY)
    assert (found.value, found.low, found.high) == (1, 1, 1)


def test_probability_of_improvement_skips_what_is_undefined() -> None:
    nan = math.nan
    x, y = np.array([[1.0, nan], [nan, nan]]), np.array([[0.0, 1.0]])
    assert probability_of_improvement(x, y, KEY) == Interval(1.0, None, None, 1)
    assert probability_of_improvement(x[:, 1], y[:, 1], KEY) == Interval(None, None, None, 0)
    with pytest.raises(ConfigError, match="2 folds against 1"):
        probability_of_improvement(x, y[:, :1], KEY)


def test_mean_interval_by_hand() -> None:
    # sd 1, standard error 1 / sqrt(3), t = 4.302653 for two degrees of freedom
    found = mean_interval(np.array([1.0, 2, 3]))
    reach = 4.302653 / math.sqrt(3)
    assert (found.value, found.n) == (2, 3)
    assert (found.low, found.high) == pytest.approx((2 - reach, 2 + reach), rel=1e-6)
    assert mean_interval(np.array([1.0, math.nan, 2, 3])) == found


def test_mean_interval_without_a_spread() -> None:
    assert mean_interval(np.array([])) == Interval(None, None, None, 0)
    assert mean_interval(np.array([2.0])) == Interval(2.0, None, None, 1)
    assert mean_interval(np.array([2.0, 2.0])) == Interval(2.0, None, None, 2)


def test_mean_difference_of_pairs_and_of_independent_samples() -> None:
    x, y = np.array([5.0, 7, 10, 12]), np.array([4.0, 7, 8, 10])
    paired = stats.ttest_rel(x, y).confidence_interval(0.9)
    found = mean_difference(x, y, confidence=0.9)
    assert (found.value, found.n) == (1.25, 4)
    assert (found.low, found.high) == pytest.approx(tuple(paired))
    welch = stats.ttest_ind(x, y[:3], equal_var=False).confidence_interval(0.9)
    found = mean_difference(x, y[:3], paired=False, confidence=0.9)
    assert (found.low, found.high) == pytest.approx(tuple(welch))
    # a baseline without dispersion leaves that of the other
    one_sided = mean_difference(x, np.array([8.0, 8.0]), paired=False)
    assert one_sided.low == pytest.approx(mean_interval(x - 8).low)


def test_mean_difference_that_is_not_defined() -> None:
    one, two = np.array([1.0]), np.array([1.0, 3.0])
    with pytest.raises(ConfigError, match="2 seeds against 1"):
        mean_difference(two, one)
    assert mean_difference(two, one, paired=False) == Interval(1.0, None, None, 3)
    assert mean_difference(two, one[:0], paired=False) == Interval(None, None, None, 2)
    assert mean_difference(two, two).low is None
    with pytest.raises(ConfigError, match="confidence = 95"):
        mean_interval(two, confidence=95)
