"""Metrics of one fold on a ledger worked by hand, and the faults of other tools."""

import math

import numpy as np
import pytest

from backtest.errors import ConfigError, DataError
from backtest.evaluation.metrics import (
    METRICS,
    OPEN,
    cost_share,
    daily_pnl,
    drawdown_length,
    fold_metrics,
    max_drawdown,
    profit_factor,
    turnover,
    win_rate,
)


def rows_of(
    session: list[int], position: list[float], gross: list[float], cost: list[float]
) -> dict[str, np.ndarray]:
    """Equity rows of a fold that starts with 1,000."""
    pnl = np.array(gross, float) - np.array(cost, float)
    return {
        "bar": np.arange(700, 700 + len(session)),
        "session": np.array(session, np.int32),
        "position": np.array(position, float),
        "gross": np.array(gross, float),
        "cost": np.array(cost, float),
        "pnl": pnl,
        "equity": 1000 + np.cumsum(pnl),
    }


def trades_of(*trades: tuple[int, float, str]) -> np.ndarray:
    return np.array(list(trades), [("bars", np.int64), ("pnl", float), ("reason", "U8")])


def test_a_ledger_worked_by_hand() -> None:
    # long 1 for two bars, closed at the open of the third; short 1 from the fourth on, still open
    rows = rows_of(
        [100, 100, 101, 101, 104], [1, 1, 0, -1, -1], [10, -5, 0, 20, -5], [1, 0, 1, 1, 0]
    )
    found = fold_metrics(rows, trades_of((2, 3.0, "exit"), (2, 14.0, OPEN)), 1000, 252)
    days = np.array([0.004, 0.018, -0.005])  # mean .017 / 3
    expected = {
        "net_return": 0.017,
        "gross_return": 0.020,
        "cagr": 1.017 ** (365.25 / 5) - 1,  # sessions 100 to 104
        "volatility": np.std(days, ddof=1) * math.sqrt(252),
        "sharpe": 0.017 / 3 / np.std(days, ddof=1) * math.sqrt(252),
        "sortino": 0.017 / 3 / math.sqrt(0.005**2 / 3) * math.sqrt(252),
        "calmar": (1.017 ** (365.25 / 5) - 1) / (6 / 1009),
        "max_drawdown": 6 / 1009,  # 1009 to 1003
        "drawdown_length": 2,
        "ruined": 0,
        "win_rate": 1,
        "profit_factor": None,  # no loss
        "expectancy": 3,
        "average_trade": 8.5,
        "holding_time": 2,
        "exposure": 0.8,
        "turnover": 3,
        "cost_share": 3 / 20,
        "var_95": 0.005,
        "cvar_95": 0.005,
        "n_trades": 1,
        "n_open": 1,
    }
    for name, value in expected.items():
        assert found[name] == (None if value is None else pytest.approx(value)), name
    assert found.keys() == METRICS.keys() == expected.keys() | {"skew", "kurtosis"}


def test_structured_rows_do_as_well() -> None:
    columns = rows_of([1, 2, 3], [1, 1, 1], [5, -3, 4], [1, 0, 0])
    rows = np.zeros(3, [(name, c.dtype) for name, c in columns.items()])
    for name, column in columns.items():
        rows[name] = column
    none = trades_of()
    assert fold_metrics(rows, none, 1000, 252) == fold_metrics(columns, none, 1000, 252)


def test_row_26_a_flat_fold_is_no_crash_and_no_infinity() -> None:
    found = fold_metrics(rows_of([1, 1, 2, 3], [0] * 4, [0] * 4, [0] * 4), trades_of(), 1000, 252)
    zero = {
        "net_return",
        "gross_return",
        "cagr",
        "volatility",
        "max_drawdown",
        "drawdown_length",
        "ruined",
        "exposure",
        "turnover",
        "var_95",
        "cvar_95",
        "n_trades",
        "n_open",
    }
    assert {name for name, value in found.items() if value == 0} == zero
    assert all(found[name] is None for name in METRICS.keys() - zero)


def test_row_27_one_bar() -> None:
    found = fold_metrics(rows_of([1], [1], [5], [1]), trades_of((1, 4.0, OPEN)), 1000, 252)
    assert (found["net_return"], found["n_open"]) == (pytest.approx(0.004), 1)
    for name in ("sharpe", "sortino", "volatility", "cagr", "calmar", "skew", "var_95"):
        assert found[name] is None


def test_no_row_at_all() -> None:
    found = fold_metrics(rows_of([], [], [], []), trades_of(), 1000, 252)
    assert {name for name, value in found.items() if value is not None} == {"n_trades", "n_open"}


def test_every_value_is_none_or_finite() -> None:
    # a cost without gross, a loss beyond the capital, trades that only lose
    rows = rows_of([1, 2, 3], [1, 1, 0], [0, -1500, 0], [1, 0, 1])
    found = fold_metrics(rows, trades_of((2, -1502.0, "ruin")), 1000, 252)
    assert all(v is None or math.isfinite(v) for v in found.values())
    assert found["net_return"] == pytest.approx(-1.502)
    assert found["max_drawdown"] == pytest.approx(1.502)
    assert found["ruined"] == 1
    assert found["cagr"] is None
    assert found["calmar"] is None
    assert found["cost_share"] is None
    assert found["profit_factor"] == 0


def test_losing_exactly_everything_is_ruin() -> None:
    found = fold_metrics(rows_of([1, 2], [1, 1], [-1000, 0], [0, 0]), trades_of(), 1000, 252)
    assert (found["ruined"], found["max_drawdown"], found["cagr"]) == (1, 1, None)


def test_row_20_bars_per_session_do_not_matter() -> None:
    generator = np.random.default_rng(1)
    sharpes = []
    for bars in (1, 26, 96):
        daily = np.random.default_rng(0).normal(1, 10, 60)
        parts = generator.normal(0, 5, (60, bars))
        parts += (daily - parts.sum(1))[:, None] / bars
        session = np.repeat(np.arange(60), bars)
        n = len(session)
        rows = rows_of(session.tolist(), [1] * n, parts.ravel().tolist(), [0] * n)
        sharpes.append(fold_metrics(rows, trades_of(), 1000, 252)["sharpe"])
    assert sharpes == pytest.approx([sharpes[0]] * 3)


def test_row_30_drawdown_is_measured_from_the_running_peak() -> None:
    assert max_drawdown(np.array([1.0, 5, 4, 3, 2]), 1) == pytest.approx(0.6)
    assert max_drawdown(np.array([2.0, 1, 5]), 1) == pytest.approx(0.5)  # not from a later peak
    # a run that only loses falls from the capital it started with
    assert max_drawdown(np.array([9.0, 8, 7]), 10) == pytest.approx(0.3)
    assert max_drawdown(np.array([4.0, -5]), 10) == pytest.approx(1.5)
    assert max_drawdown(np.array([11.0, 12]), 10) == 0


@pytest.mark.parametrize(
    ("equity", "bars"),
    [
        ([1, 5, 4, 3, 2], 3),
        ([9, 8, 7], 3),  # never at the initial 10 again
        ([11, 10, 12, 11, 11, 13], 2),
        ([11, 12, 12], 0),  # equal to the peak is not below it
        ([9, 10], 1),
    ],
)
def test_drawdown_length(equity: list[float], bars: int) -> None:
    initial = 1 if equity[0] == 1 else 10
    assert drawdown_length(np.array(equity, float), initial) == bars


def test_row_38_a_flip_trades_two_units() -> None:
    assert turnover(np.array([1.0, -1.0])) - turnover(np.array([1.0])) == 2
    assert turnover(np.array([0.0, 0.5, 0.5, 0.0])) == 1


def test_row_30g_the_cost_share_does_not_grow_with_length() -> None:
    gross, cost = np.array([10.0, -5, 15]), np.array([1.0, 1, 2])
    assert cost_share(gross, cost) == pytest.approx(0.2)
    assert cost_share(np.tile(gross, 2), np.tile(cost, 2)) == pytest.approx(0.2)
    assert cost_share(-gross, cost) is None
    # 0.1 + 0.2 - 0.3 is rounding, not a profit
    assert cost_share(np.array([0.1, 0.2, -0.3]), cost) is None


def test_trade_ratios() -> None:
    pnl = np.array([30.0, -10, 0, -5])
    assert win_rate(pnl) == 0.25
    assert profit_factor(pnl) == 2
    assert profit_factor(pnl[:1]) is None
    assert profit_factor(pnl[1:]) == 0
    assert profit_factor(np.array([1e6, -1e-12])) is None  # rounding, not 1e18
    assert win_rate(pnl[:0]) is None


def test_daily_sums() -> None:
    sessions, pnl = daily_pnl(np.array([5, 5, 7, 9, 9]), np.array([1.0, 2, -4, 8, 16]))
    assert (sessions.tolist(), pnl.tolist()) == ([5, 7, 9], [3, -4, 24])
    with pytest.raises(DataError, match="session falls at row 2"):
        daily_pnl(np.array([5, 6, 5]), np.zeros(3))


def test_every_metric_says_its_unit_and_meaning() -> None:
    assert all(m.unit and m.description for m in METRICS.values())


def test_refuses_what_would_make_every_number_wrong() -> None:
    rows = rows_of([1, 2], [1, 1], [1, 2], [0, 0])
    with pytest.raises(ConfigError, match="initial_capital = 0"):
        fold_metrics(rows, trades_of(), 0.0, 252)
    with pytest.raises(ConfigError, match="sessions_per_year"):
        fold_metrics(rows, trades_of(), 1000, 0)
    rows["pnl"][1] = math.nan
    with pytest.raises(DataError, match=r"bar 701: pnl = nan"):
        fold_metrics(rows, trades_of(), 1000, 252)
