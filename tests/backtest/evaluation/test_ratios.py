"""Ratios of daily returns on numbers worked by hand, and the faults of other tools."""

import math

import numpy as np
import pytest
from scipy import stats

from backtest.errors import ConfigError
from backtest.evaluation.ratios import (
    cagr,
    calmar,
    conditional_value_at_risk,
    kurtosis,
    sharpe,
    skewness,
    sortino,
    value_at_risk,
    volatility,
)

FOUR = np.array([0.01, -0.01, 0.03, 0.01])  # mean .01, deviations 0, -.02, .02, 0


def test_hand_worked() -> None:
    # std = sqrt(.0008 / 3); mean / std = sqrt(.375)
    assert sharpe(FOUR, 1) == pytest.approx(math.sqrt(0.375))
    # row 30d: times the root, not to the power of it
    assert sharpe(FOUR, 252) == pytest.approx(math.sqrt(0.375) * math.sqrt(252))
    # downside = sqrt(.01^2 / 4) = .005, over all four rows
    assert sortino(FOUR, 1) == pytest.approx(2)
    assert sortino(FOUR, 4) == pytest.approx(4)
    assert volatility(FOUR, 3) == pytest.approx(math.sqrt(0.0008))
    # m2 = .0002, m4 = 2 * .02^4 / 4 = 8e-8
    assert skewness(FOUR) == pytest.approx(0, abs=1e-12)
    assert kurtosis(FOUR) == pytest.approx(2)


def test_moments_are_scipys_and_not_in_excess() -> None:
    returns = np.random.default_rng(0).standard_t(5, 500) * 1e-3
    assert skewness(returns) == pytest.approx(stats.skew(returns))
    assert kurtosis(returns) == pytest.approx(stats.kurtosis(returns, fisher=False))
    # a scale whose fourth power would underflow
    assert kurtosis(returns * 1e-90) == pytest.approx(stats.kurtosis(returns, fisher=False))


@pytest.mark.parametrize(("n", "at_risk", "beyond"), [(20, 0.020, 0.020), (40, 0.039, 0.0395)])
def test_tail_losses_are_positive(n: int, at_risk: float, beyond: float) -> None:
    losses = -np.arange(1, n + 1) / 1000  # the worst 5 % are 1 of 20 and 2 of 40 rows
    assert value_at_risk(losses) == pytest.approx(at_risk)
    assert conditional_value_at_risk(losses) == pytest.approx(beyond)
    assert value_at_risk(-losses) == pytest.approx(-0.001 * (n // 20))


def test_row_20_a_market_day_has_its_own_number_of_sessions() -> None:
    # annualising by 96 instead of 26 quarter hours a day inflates by 1.9215: days do not
    assert math.sqrt(96 / 26) == pytest.approx(1.9215, abs=1e-4)
    ratio = sharpe(FOUR, 365), sharpe(FOUR, 252)
    assert ratio[0] / ratio[1] == pytest.approx(math.sqrt(365 / 252))  # row 23


@pytest.mark.parametrize("sessions", [0.0, -252.0, math.nan, math.inf])
@pytest.mark.parametrize("ratio", [sharpe, sortino, volatility])
def test_row_21_an_unknown_number_of_sessions_is_an_error(ratio, sessions: float) -> None:
    with pytest.raises(ConfigError, match="sessions_per_year"):
        ratio(FOUR, sessions)


@pytest.mark.parametrize("value", [0.001, -0.001, 0.1, 1 / 3, 1e-12, 0.0])
@pytest.mark.parametrize("n", [2, 3, 7, 252, 100_000])
def test_row_25_constant_returns_have_no_sharpe(value: float, n: int) -> None:
    returns = np.full(n, value)
    assert sharpe(returns, 252) is None
    assert skewness(returns) is None
    assert kurtosis(returns) is None
    assert volatility(returns, 252) == 0.0
    # rounding in the last place is no dispersion either
    returns[::2] = np.nextafter(returns[::2], 1.0)
    assert value == 0.0 or sharpe(returns, 252) is None


def test_row_26_riskless_is_not_infinite() -> None:
    assert sortino(np.full(5, 0.001), 252) is None
    assert sortino(np.zeros(5), 252) is None
    assert sharpe(np.full(5, -0.001), 252) is None
    # each day loses what it loses on average
    assert sortino(np.full(5, -0.001), 252) == pytest.approx(-math.sqrt(252))
    assert math.copysign(1, value_at_risk(np.zeros(5)) or 0.0) == 1


@pytest.mark.parametrize("n", [0, 1])
def test_row_27_fewer_than_two_rows(n: int) -> None:
    returns = np.full(n, 0.01)
    assert sharpe(returns, 252) is None
    assert sortino(returns, 252) is None
    assert volatility(returns, 252) is None
    assert skewness(returns) is None
    assert value_at_risk(returns) is None
    assert conditional_value_at_risk(returns) is None


def test_row_30c_growth_counts_calendar_days() -> None:
    # 3,116 calendar days taken for days of a 252-day year gave 14.16 %
    growth = 1.1416 ** (3116 / 252) - 1
    assert cagr(growth, 3116) == pytest.approx(0.2116, abs=5e-5)
    assert cagr(0.21, 2 * 365.25) == pytest.approx(0.1)
    assert cagr(0.0, 400) == 0.0


def test_growth_and_calmar_that_are_not_defined() -> None:
    assert cagr(-1.0, 365) is None
    assert cagr(-1.5, 365) is None
    assert cagr(0.01, 1) is None
    assert cagr(300.0, 2) is None  # 301^183 is no number
    assert calmar(0.2, 0.1) == pytest.approx(2)
    assert calmar(-0.2, 0.1) == pytest.approx(-2)
    assert calmar(0.2, 0.0) is None
    assert calmar(0.2, 2e-16) is None
    assert calmar(None, 0.1) is None
    assert calmar(0.2, None) is None
