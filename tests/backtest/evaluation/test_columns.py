"""Ratios of many series at once are those of each."""

import numpy as np
import pytest

from backtest.evaluation import columns, ratios

YEAR = 252.0


def series():
    draw = np.random.default_rng(0)
    returns = draw.normal(0.001, 0.01, (40, 6))
    returns[:, 1] = 0.0
    returns[:, 2] = 0.001  # riskless
    returns[:, 3] = np.abs(returns[:, 3])  # never loses
    returns[:, 4] = -0.002
    return returns


def numbers(values):
    return np.array([np.nan if value is None else value for value in values])


@pytest.mark.parametrize("rows", [40, 2, 1])
@pytest.mark.parametrize("name", ["sharpe", "sortino", "volatility"])
def test_ratios_column_by_column(name, rows):
    returns = series()[:rows]
    wanted = numbers([getattr(ratios, name)(column, YEAR) for column in returns.T])
    np.testing.assert_allclose(getattr(columns, name)(returns, YEAR), wanted, rtol=1e-12)
    if rows == 40:
        assert np.isnan(wanted).any() == (name != "volatility") and np.isfinite(wanted).any()


@pytest.mark.parametrize("days", [1, 2, 100, 365.25, 1000])
def test_growth(days):
    net = np.array([-2.0, -1.0, -0.5, 0.0, 0.3, 1e200])
    wanted = numbers([ratios.cagr(x, days) for x in net])
    np.testing.assert_allclose(columns.cagr(net, days), wanted, rtol=1e-12)
