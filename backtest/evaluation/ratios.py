"""Ratios of a series of daily returns, as pure functions.

`returns` is float64[n]: net PnL of a session over the initial capital, one row for every session,
flat ones included. The mean and the dispersion of a ratio always come from this one series.

The NaN rule: what is not defined (fewer than 2 rows, no dispersion, an empty set) is None, never
NaN, inf, 0 or a huge number. A dispersion below 4 eps of the largest row is rounding, hence none.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from backtest.errors import ConfigError

Floats = npt.NDArray[np.float64]

ROUNDING = 4 * float(np.finfo(np.float64).eps)
TAIL = 0.05  # of the rows, for the value at risk at 95 %
DAYS_PER_YEAR = 365.25


def check_sessions(sessions_per_year: float) -> None:
    """Refuse an unknown number of sessions; there is no default that would suit every market."""
    if not (math.isfinite(sessions_per_year) and sessions_per_year > 0):
        raise ConfigError(
            f"sessions_per_year = {sessions_per_year!r}: the instrument's calendar gives it "
            "(365 for 24/7); set instruments.NAME.calendar"
        )


def dispersion(returns: Floats) -> float | None:
    """Return the standard deviation (ddof 1); None for fewer than 2 rows or mere rounding."""
    if len(returns) < 2:
        return None
    # centring on a row first makes the dispersion of a constant exactly 0
    deviation = float(np.std(returns - returns[0], ddof=1))
    return None if deviation <= ROUNDING * float(np.max(np.abs(returns))) else deviation


def sharpe(returns: Floats, sessions_per_year: float) -> float | None:
    """Return mean / std (ddof 1) * sqrt(sessions per year); risk-free rate 0."""
    check_sessions(sessions_per_year)
    deviation = dispersion(returns)
    if deviation is None:
        return None
    return float(np.mean(returns)) / deviation * math.sqrt(sessions_per_year)


def sortino(returns: Floats, sessions_per_year: float) -> float | None:
    """Return mean / root of the mean squared negative part over all rows, annualised."""
    check_sessions(sessions_per_year)
    if len(returns) < 2:
        return None
    downside = math.sqrt(float(np.mean(np.minimum(returns, 0.0) ** 2)))
    if downside <= ROUNDING * float(np.max(np.abs(returns))):
        return None
    return float(np.mean(returns)) / downside * math.sqrt(sessions_per_year)


def volatility(returns: Floats, sessions_per_year: float) -> float | None:
    """Return std (ddof 1) * sqrt(sessions per year); 0 for constant returns."""
    check_sessions(sessions_per_year)
    if len(returns) < 2:
        return None
    return (dispersion(returns) or 0.0) * math.sqrt(sessions_per_year)


def moment(returns: Floats, order: int) -> float | None:
    """Return the standardised central moment, mean((r - m)^k) / mean((r - m)^2)^(k/2)."""
    if dispersion(returns) is None:
        return None
    # in units of the largest deviation, so that no power underflows
    centred = returns - np.mean(returns)
    centred = centred / np.max(np.abs(centred))
    return float(np.mean(centred**order) / np.mean(centred**2) ** (order / 2))


def skewness(returns: Floats) -> float | None:
    """Return the third standardised moment."""
    return moment(returns, 3)


def kurtosis(returns: Floats) -> float | None:
    """Return the fourth standardised moment, not in excess: 3 for the normal distribution."""
    return moment(returns, 4)


def value_at_risk(returns: Floats) -> float | None:
    """Return the loss of the 5 % quantile row, positive for a loss."""
    if len(returns) < 2:
        return None
    # 0.0 - x: a quantile of 0 is 0, not -0
    return 0.0 - float(np.quantile(returns, TAIL, method="inverted_cdf"))


def conditional_value_at_risk(returns: Floats) -> float | None:
    """Return the mean loss of the rows at or below the 5 % quantile, positive for a loss."""
    if len(returns) < 2:
        return None
    quantile = np.quantile(returns, TAIL, method="inverted_cdf")
    return 0.0 - float(np.mean(returns[returns <= quantile]))


def cagr(net_return: float, days: float) -> float | None:
    """Return (1 + net return)^(365.25 / calendar days) - 1; None from a loss of everything on.

    Args:
        net_return: fraction of the initial capital over the whole span.
        days: calendar days covered, first and last included.
    """
    if days < 2 or net_return <= -1:
        return None
    exponent = DAYS_PER_YEAR / days * math.log1p(net_return)
    # a few lucky days annualise beyond what a float holds
    return math.expm1(exponent) if exponent < 700 else None


def calmar(growth: float | None, drawdown: float | None) -> float | None:
    """Return CAGR / maximum drawdown; None without either."""
    if growth is None or drawdown is None or drawdown <= ROUNDING:
        return None
    return growth / drawdown
