"""Ratios of many series of daily returns at once: `ratios`, column by column.

`returns` is float64[sessions, n]; what is undefined is NaN here, so that results stay arrays.
"""

from __future__ import annotations

import numpy as np

from backtest.evaluation.ratios import DAYS_PER_YEAR, ROUNDING, Floats, check_sessions


def dispersion(returns: Floats) -> Floats:
    """Return standard deviations (ddof 1), float64[n]; NaN for mere rounding or one row."""
    if len(returns) < 2:
        return np.full(returns.shape[1], np.nan)
    deviation = np.std(returns - returns[0], axis=0, ddof=1)
    kept: Floats = np.where(deviation <= ROUNDING * np.abs(returns).max(axis=0), np.nan, deviation)
    return kept


def sharpe(returns: Floats, sessions_per_year: float) -> Floats:
    """Return mean / std (ddof 1) * sqrt(sessions per year), float64[n]."""
    check_sessions(sessions_per_year)
    ratio: Floats = returns.mean(axis=0) / dispersion(returns) * np.sqrt(sessions_per_year)
    return ratio


def sortino(returns: Floats, sessions_per_year: float) -> Floats:
    """Return mean / root of the mean squared negative part, annualised, float64[n]."""
    check_sessions(sessions_per_year)
    downside = np.sqrt(np.mean(np.minimum(returns, 0.0) ** 2, axis=0))
    rounding = (downside <= ROUNDING * np.abs(returns).max(axis=0)) | (len(returns) < 2)
    downside = np.where(rounding, np.nan, downside)
    ratio: Floats = returns.mean(axis=0) / downside * np.sqrt(sessions_per_year)
    return ratio


def volatility(returns: Floats, sessions_per_year: float) -> Floats:
    """Return std (ddof 1) * sqrt(sessions per year), float64[n]; 0 for constant returns."""
    check_sessions(sessions_per_year)
    if len(returns) < 2:
        return dispersion(returns)
    found: Floats = np.nan_to_num(dispersion(returns)) * np.sqrt(sessions_per_year)
    return found


def cagr(net_return: Floats, days: float) -> Floats:
    """Return (1 + net return)^(365.25 / calendar days) - 1, float64[n]."""
    lost = (net_return <= -1) | (days < 2)
    exponent = DAYS_PER_YEAR / days * np.log1p(np.where(lost, 0.0, net_return))
    undefined = lost | (exponent >= 700)
    growth: Floats = np.where(undefined, np.nan, np.expm1(np.where(undefined, 0.0, exponent)))
    return growth
