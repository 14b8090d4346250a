import math

import numpy as np
import pytest

from backtest.features.volatility import parkinson, sigma


def test_sigma_follows_the_recursion():
    d = np.random.default_rng(0).normal(size=500)
    lam = 2.0 ** (-1 / 60)
    variance = d[1] * d[1]
    expected = [0.0, variance]
    for move in d[2:]:
        variance = lam * variance + (1 - lam) * move * move
        expected.append(variance)
    assert sigma(d) == pytest.approx(np.sqrt(expected), rel=1e-14)


def test_half_life_is_counted_in_bars():
    d = np.zeros(20)
    d[1] = 3.0
    assert sigma(d, 8)[[0, 1, 9, 17]] == pytest.approx([0, 3, 3 / math.sqrt(2), 1.5])


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_short_series(n):
    assert sigma(np.full(n, 2.0)) == pytest.approx([0.0, 2.0, 2.0][:n])


def test_a_long_standstill_ends_at_zero():
    d = np.zeros(10_000)
    d[1] = 1.0
    assert sigma(d, 8)[-1] == 0.0


def test_parkinson_of_a_constant_range():
    high, low = np.full(25, -30.0), np.full(25, -32.0)
    expected = 2 / math.sqrt(4 * math.log(2))
    assert parkinson(high, low)[19:] == pytest.approx(expected)
    assert not parkinson(high, low)[:19].any()
