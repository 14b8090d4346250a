"""Every metric of a walk-forward row, computed from recorded equity rows and trades.

`METRICS` is the one list of names, units and meanings. Undefined is None; see `ratios`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from backtest.errors import ConfigError, DataError
from backtest.evaluation import ratios
from backtest.evaluation.ratios import ROUNDING, Floats

# A structured array or a mapping of equally long columns.
Columns = Mapping[str, npt.NDArray[Any]] | npt.NDArray[np.void]

# One row for every bar of a test window.
EQUITY_COLUMNS = ("bar", "session", "position", "gross", "cost", "pnl", "equity")
# One row for every trade of it; `reason` OPEN: still held at the end, marked to market.
TRADE_COLUMNS = ("bars", "pnl", "reason")
OPEN = "open"


@dataclass(frozen=True)
class Sample:
    """What the metrics read: one fold, or several stitched together."""

    equity: Floats  # (n,) currency at each bar's close
    gross: Floats  # (n,) currency, PnL before costs
    cost: Floats  # (n,) currency
    position: Floats  # (n,) units held into each bar's close
    returns: Floats  # (m,) daily net PnL / initial capital
    days: int  # calendar days from the first session to the last, both included
    traded: float  # units
    gross_return: float
    trades: Columns
    initial_capital: float  # currency
    sessions_per_year: float
    ruined: bool  # a stitched fold lost all capital: nothing after it is a track record

    @property
    def net_return(self) -> float | None:
        """Fraction of the initial capital."""
        return float(self.equity[-1]) / self.initial_capital - 1 if len(self.equity) else None

    @property
    def growth(self) -> float | None:
        """CAGR."""
        if self.ruined or self.net_return is None:
            return None
        return ratios.cagr(self.net_return, self.days)

    @property
    def drawdown(self) -> float | None:
        """Maximum drawdown."""
        return max_drawdown(self.equity, self.initial_capital)

    @property
    def open(self) -> npt.NDArray[np.bool_]:
        """Whether each trade was still held at the end of its window."""
        held: npt.NDArray[np.bool_] = np.asarray(self.trades["reason"], np.str_) == OPEN
        return held

    @property
    def closed(self) -> Floats:
        """Net PnL of each closed trade, currency."""
        return floats(self.trades, "pnl")[~self.open]


def floats(columns: Columns, name: str) -> Floats:
    """Return one column as float64."""
    return np.asarray(columns[name], np.float64)


def daily_pnl(
    session: npt.NDArray[np.integer], pnl: Floats
) -> tuple[npt.NDArray[np.int32], Floats]:
    """Sum the PnL of bars by session: (sessions int32[m], pnl float64[m]).

    Raises:
        DataError: a session that lies before the one of the preceding bar.
    """
    falls = np.flatnonzero(np.diff(session) < 0)
    if len(falls):
        raise DataError(f"session falls at row {falls[0] + 1} of the equity; sort it by bar")
    if not len(session):
        return np.empty(0, np.int32), np.empty(0)
    starts = np.flatnonzero(np.concatenate(([True], np.diff(session) > 0)))
    return session[starts].astype(np.int32), np.add.reduceat(pnl, starts)


def running_peak(equity: Floats, initial_capital: float) -> Floats:
    """Return the highest equity up to each bar; the initial capital is the first peak."""
    return np.maximum.accumulate(np.maximum(equity, initial_capital))


def max_drawdown(equity: Floats, initial_capital: float) -> float | None:
    """Return the largest (peak - equity) / peak, >= 0; above 1 when more than all was lost."""
    if not len(equity):
        return None
    peak = running_peak(equity, initial_capital)
    return float(np.max((peak - equity) / peak))


def drawdown_length(equity: Floats, initial_capital: float) -> float | None:
    """Return the longest run of bars below the running peak; a run may last to the end."""
    if not len(equity):
        return None
    at_peak = np.flatnonzero(equity >= running_peak(equity, initial_capital))
    return float(np.max(np.diff(np.concatenate(([-1], at_peak, [len(equity)]))) - 1))


def win_rate(pnl: Floats) -> float | None:
    """Return the share of trades with a profit after costs."""
    return float(np.mean(pnl > 0)) if len(pnl) else None


def profit_factor(pnl: Floats) -> float | None:
    """Return the sum of profits / the sum of losses; None without a loss."""
    profit, loss = float(np.sum(pnl[pnl > 0])), -float(np.sum(pnl[pnl < 0]))
    return profit / loss if loss > ROUNDING * profit else None


def mean(values: Floats) -> float | None:
    """Return the mean; None of nothing."""
    return float(np.mean(values)) if len(values) else None


def turnover(position: Floats) -> float:
    """Return the units traded from a flat start: a flip from +1 to -1 trades two.

    The roll of a contract replaces a position and changes none; it is in the cost only.
    """
    return float(np.sum(np.abs(np.diff(position, prepend=0.0))))


def cost_share(gross: Floats, cost: Floats) -> float | None:
    """Return total cost / total gross PnL; None unless the gross PnL is positive."""
    total = float(np.sum(gross))
    if total <= ROUNDING * float(np.sum(np.abs(gross))):
        return None
    return float(np.sum(cost)) / total


class Metric(NamedTuple):
    """One row of the catalogue."""

    unit: str
    description: str
    function: Callable[[Sample], float | None]


def risk_ratio(
    function: Callable[[Floats, float], float | None],
) -> Callable[[Sample], float | None]:
    """Return the ratio of a sample's daily returns; None after a ruin."""
    return lambda s: None if s.ruined else function(s.returns, s.sessions_per_year)


METRICS: dict[str, Metric] = {
    "net_return": Metric(
        "fraction", "net PnL / initial capital, whole span", lambda s: s.net_return
    ),
    "gross_return": Metric(
        "fraction",
        "PnL before costs / initial capital, whole span",
        lambda s: s.gross_return if len(s.gross) else None,
    ),
    "cagr": Metric("fraction per year", "compound growth, 365.25 days a year", lambda s: s.growth),
    "volatility": Metric(
        "fraction per year",
        "standard deviation of daily returns, annualised by sessions",
        lambda s: ratios.volatility(s.returns, s.sessions_per_year),
    ),
    "sharpe": Metric(
        "ratio per year",
        "mean / standard deviation of daily net PnL over initial capital, annualised by sessions",
        risk_ratio(ratios.sharpe),
    ),
    "sortino": Metric(
        "ratio per year",
        "mean / root mean squared negative part of daily returns, annualised by sessions",
        risk_ratio(ratios.sortino),
    ),
    "calmar": Metric(
        "ratio per year",
        "CAGR / maximum drawdown",
        lambda s: ratios.calmar(s.growth, s.drawdown),
    ),
    "max_drawdown": Metric(
        "fraction",
        "largest fall from a peak of equity, the initial capital being the first peak",
        lambda s: s.drawdown,
    ),
    "drawdown_length": Metric(
        "bars",
        "longest time below a peak of equity",
        lambda s: drawdown_length(s.equity, s.initial_capital),
    ),
    "ruined": Metric(
        "0 or 1",
        "1: equity fell to zero or below",
        lambda s: None if s.drawdown is None else float(s.ruined or s.drawdown >= 1),
    ),
    "win_rate": Metric(
        "fraction", "closed trades with a profit after costs", lambda s: win_rate(s.closed)
    ),
    "profit_factor": Metric(
        "ratio", "profits / losses of closed trades", lambda s: profit_factor(s.closed)
    ),
    "expectancy": Metric("currency", "mean net PnL of a closed trade", lambda s: mean(s.closed)),
    "average_trade": Metric(
        "currency",
        "mean net PnL of all trades, an open one marked to market",
        lambda s: mean(floats(s.trades, "pnl")),
    ),
    "holding_time": Metric(
        "bars",
        "mean length of a closed trade",
        lambda s: mean(floats(s.trades, "bars")[~s.open]),
    ),
    "exposure": Metric(
        "fraction",
        "bars with a position",
        lambda s: mean((s.position != 0).astype(np.float64)),
    ),
    "turnover": Metric(
        "units", "units traded over the whole span", lambda s: s.traded if len(s.gross) else None
    ),
    "cost_share": Metric(
        "fraction", "costs / PnL before costs, whole span", lambda s: cost_share(s.gross, s.cost)
    ),
    "skew": Metric("ratio", "skewness of daily returns", lambda s: ratios.skewness(s.returns)),
    "kurtosis": Metric(
        "ratio",
        "kurtosis of daily returns, 3 for the normal distribution",
        lambda s: ratios.kurtosis(s.returns),
    ),
    "var_95": Metric(
        "fraction per day",
        "daily loss exceeded on 5 % of days",
        lambda s: ratios.value_at_risk(s.returns),
    ),
    "cvar_95": Metric(
        "fraction per day",
        "mean daily loss of the worst 5 % of days",
        lambda s: ratios.conditional_value_at_risk(s.returns),
    ),
    "n_trades": Metric("count", "closed trades", lambda s: float(len(s.closed))),
    "n_open": Metric(
        "count",
        "positions open at the end of a test window",
        lambda s: float(np.sum(s.open)),
    ),
}


def evaluate(sample: Sample) -> dict[str, float | None]:
    """Return every metric; None where it is not defined."""
    found = {name: metric.function(sample) for name, metric in METRICS.items()}
    return {n: v if v is not None and math.isfinite(v) else None for n, v in found.items()}


def fold_metrics(
    rows: Columns, trades: Columns, initial_capital: float, sessions_per_year: float
) -> dict[str, float | None]:
    """Return every metric of one test window.

    Args:
        rows: `EQUITY_COLUMNS`, one row for each bar in order of time; session in days since 1970,
            position in units, the others in currency; pnl = gross - cost.
        trades: `TRADE_COLUMNS`; bars held, net PnL in currency, reason of the exit.
        initial_capital: currency at the start of the window.
        sessions_per_year: of the instrument's calendar.

    Raises:
        ConfigError: no capital, or an unknown number of sessions a year.
        DataError: rows that are not finite or not in order.
    """
    check_rows(rows, initial_capital)
    position, gross = floats(rows, "position"), floats(rows, "gross")
    returns, days = daily_returns(rows["session"], floats(rows, "pnl"), initial_capital)
    return evaluate(
        Sample(
            equity=floats(rows, "equity"),
            gross=gross,
            cost=floats(rows, "cost"),
            position=position,
            returns=returns,
            days=days,
            traded=turnover(position),
            gross_return=float(np.sum(gross)) / initial_capital,
            trades=trades,
            initial_capital=initial_capital,
            sessions_per_year=sessions_per_year,
            ruined=False,
        )
    )


def daily_returns(
    session: npt.NDArray[np.integer], pnl: Floats, initial_capital: float
) -> tuple[Floats, int]:
    """Return daily net PnL / initial capital, and the calendar days from first to last session."""
    sessions, daily = daily_pnl(session, pnl)
    days = int(sessions[-1]) - int(sessions[0]) + 1 if len(sessions) else 0
    return daily / initial_capital, days


def check_rows(rows: Columns, initial_capital: float) -> None:
    """Refuse capital and equity rows of which no metric would be true."""
    if not (math.isfinite(initial_capital) and initial_capital > 0):
        raise ConfigError(f"initial_capital = {initial_capital!r}: use an amount above 0")
    for name in ("position", "gross", "cost", "pnl", "equity"):
        bad = np.flatnonzero(~np.isfinite(rows[name]))
        if len(bad):
            raise DataError(
                f"equity row of bar {rows['bar'][bad[0]]}: {name} = {rows[name][bad[0]]}; "
                "evaluate the fold again from clean bars"
            )
