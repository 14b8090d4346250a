import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backtest.features.rolling import (
    lagged,
    quotient,
    rolling_max,
    rolling_min,
    rolling_moments,
    rolling_sum,
)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 70), st.integers(0, 200))
def test_windows_equal_numpy(seed, window, n):
    x = np.random.default_rng(seed).normal(size=n)
    mean, squares = rolling_moments(x, window)
    for row in range(window - 1, n):
        part = x[row - window + 1 : row + 1]
        assert rolling_sum(x, window)[row] == pytest.approx(part.sum(), abs=1e-12)
        assert mean[row] == pytest.approx(part.mean(), abs=1e-13)
        assert squares[row] == pytest.approx(part.var() * window, abs=1e-11)
        assert rolling_max(x, window)[row] == part.max()
        assert rolling_min(x, window)[row] == part.min()
    for out in (mean, squares, rolling_sum(x, window), rolling_max(x, window)):
        assert len(out) == n
        assert not out[: window - 1].any()


def test_a_huge_value_leaves_no_trace_after_its_window():
    x = np.full(40, 0.1)
    x[5] = 1e17
    assert rolling_sum(x, 10)[20] == rolling_sum(np.full(40, 0.1), 10)[20]


@pytest.mark.parametrize("window", [5, 20, 59, 60])
@pytest.mark.parametrize("value", [0.1, 1 / 3, 4999.99, -37.63])
def test_constant_windows_have_exactly_no_spread(window, value):
    mean, squares = rolling_moments(np.full(200, value), window)
    assert (mean[window - 1 :] == value).all()
    assert (squares == 0).all()


def test_a_window_depends_on_its_own_values_only():
    x = np.random.default_rng(1).normal(size=300)
    alone = rolling_sum(x[100:160], 60)[-1]
    assert rolling_sum(x, 60)[159] == alone
    assert rolling_moments(x, 60)[1][159] == rolling_moments(x[100:160], 60)[1][-1]


def test_quotient_of_zero_is_zero_and_lagged_starts_at_zero():
    assert quotient(np.array([1.0, 0.0, 6.0]), np.array([0.0, 0.0, 3.0])).tolist() == [0, 0, 2]
    assert lagged(np.array([1.0, 2.0, 4.0, 8.0]), 2).tolist() == [0, 0, 3, 6]
    assert lagged(np.array([1.0]), 2).tolist() == [0]
