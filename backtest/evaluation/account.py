"""The account of a test window in float64, rebuilt on the host from what was filled.

The device's float32 equity is for learning; every reported figure comes from here, and `reconcile`
compares the two. A roll's gap earns nothing: closes before it are shifted, as in the market.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backtest.config import Instrument, Market
from backtest.errors import DataError
from backtest.evaluation.trades import Fills, trades
from backtest.features.table import FeatureTable
from backtest.market.layout import Array, End, Order

# float32 equity: each step rounds cash, position value and their sum, 2^-24 of the largest each.
ROUNDINGS_A_STEP = 4


@dataclass(frozen=True)
class Account:
    """One row for every bar of a window, and its trades.

    Attributes:
        bar: int64[n], the bar whose PnL a row is; decided at bar - 1.
        time: int64[n], its close, ns UTC.
        close: float64[n], points.
        position: float64[n], units held into the close.
        fill_price: float64[n], points; NaN where nothing filled.
        gross: float64[n], currency.
        cost: float64[n], currency.
        equity: float64[n], currency; the initial capital plus all pnl so far.
        drawdown: float64[n], (peak - equity)/peak; the first peak is the initial capital.
        reward: float64[n].
        liquidation_cost: currency, what closing the last position would cost; not in equity.
        trades: `backtest.evaluation.trades.TRADE` records, an open one last, marked.
    """

    bar: Array
    time: Array
    close: Array
    position: Array
    fill_price: Array
    gross: Array
    cost: Array
    equity: Array
    drawdown: Array
    reward: Array
    liquidation_cost: float
    trades: Array

    @property
    def pnl(self) -> Array:
        """float64[n], gross - cost."""
        return self.gross - self.cost


def account(
    trace: Array,
    order: Array | None,
    table: FeatureTable,
    first: int,
    instrument: Instrument,
    market: Market,
) -> Account:
    """Rebuild one episode.

    Args:
        trace: `StepResult` records [n] of the steps decided at bars first, first + 1, ...
        order: integers [n], `Order`; None: market orders.
        table: bars [first, first + n] at least, absolute prices.
        first: decision bar of step 0.
        instrument: costs and point value.
        market: fill rule and initial capital.
    """
    n = len(trace)
    order = np.full(n, Order.MARKET) if order is None else np.asarray(order)
    rows = table.slice(first, first + n + 1)
    mult = instrument.point_value
    gap = np.where(rows.roll[1:], rows.open[1:] - rows.close[:-1], 0.0)
    c0, c1 = rows.close[:-1] + gap, rows.close[1:]

    live = trace["end"] != End.DEAD
    q1 = np.where(live, trace["position"].astype(np.float64), 0.0)
    ruined = trace["end"] == End.TERMINATED
    q0 = np.concatenate([[0.0], np.where(ruined, 0.0, q1)[:-1]])
    d = np.where(live, q1 - q0, 0.0)
    price = fill_price(order, d, c0, rows.open[1:], rows.sigma[:-1], instrument, market)

    gross = np.where(live, mult * (q0 * (c1 - c0) + d * (c1 - price)), 0.0)
    crossing = np.where(
        order == Order.MARKET, mult * (instrument.half_spread + instrument.slippage), 0.0
    )
    notional = np.abs(price) * mult * instrument.tx_cost_multiplier
    trade_cost = np.abs(d) * (instrument.commission + crossing + notional)
    roll_fee = instrument.commission + mult * instrument.half_spread
    roll_cost = np.where(rows.roll[1:] & live, 2 * np.abs(q0) * roll_fee, 0.0)
    cost = trade_cost + roll_cost

    equity = market.initial_capital + np.cumsum(gross - cost)
    peak = np.maximum(np.maximum.accumulate(equity), market.initial_capital)
    last = 0.0 if not n or ruined[-1] else float(q1[-1])
    at_market = mult * (instrument.half_spread + instrument.slippage)
    exit_fee = instrument.commission + at_market
    if n:
        exit_fee += abs(float(c1[-1])) * mult * instrument.tx_cost_multiplier
    filled_at = first + (0 if market.fill == "close" else 1)
    fills = Fills(
        bar=first + 1 + np.arange(n),
        fill_bar=np.where(order == Order.MARKET, filled_at, first + 1) + np.arange(n),
        q0=q0,
        d=d,
        price=price,
        mark=c1,
        gap=gap,
        trade_cost=trade_cost,
        roll_cost=roll_cost,
        ruined=ruined,
    )
    return Account(
        bar=fills.bar.astype(np.int64),
        time=rows.time[1:],
        close=c1,
        position=q1,
        fill_price=np.where(d != 0, price, np.nan),
        gross=gross,
        cost=cost,
        equity=equity,
        drawdown=(peak - equity) / peak,
        reward=trace["reward"].astype(np.float64),
        liquidation_cost=abs(last) * exit_fee,
        trades=trades(fills, mult),
    )


def fill_price(
    order: Array,
    d: Array,
    c0: Array,
    next_open: Array,
    sigma: Array,
    instrument: Instrument,
    market: Market,
) -> Array:
    """Return the price of each fill in points, float64[n]; see `backtest.market.fill`."""
    offset = np.array([0.0, *instrument.limit_offsets])[order]
    buy = d > 0
    limit = np.where(buy, c0 - offset * sigma, c0 + offset * sigma)
    better = np.where(buy, np.minimum(limit, next_open), np.maximum(limit, next_open))
    at_market = c0 if market.fill == "close" else next_open
    return np.where(order == Order.MARKET, at_market, better)


def tolerance(trace: Array, instrument: Instrument, market: Market) -> float:
    """Return how far float32 equity may stray from float64 over a trace, currency.

    Each step rounds cash, the position's value, the traded value and their sums to 2^-24 of the
    largest of them; over n steps the errors add up at most linearly.
    """
    reach = np.abs(trace["fill_price"]).max(initial=0.0)
    held = np.abs(trace["position"]).max(initial=0.0) * instrument.point_value * reach
    largest = max(market.initial_capital, np.abs(trace["equity"]).max(initial=0.0)) + 2 * held
    return float(ROUNDINGS_A_STEP * 2.0**-24 * largest * (len(trace) + 1))


def reconcile(found: Account, trace: Array, instrument: Instrument, market: Market) -> float:
    """Compare the account with the device's equity and with its own trades.

    Returns:
        The largest difference between host and device equity, currency.

    Raises:
        DataError: device and host, or equity and trades, do not agree.
    """
    live = trace["end"] != End.DEAD
    allowed = tolerance(trace, instrument, market)
    difference = np.abs(found.equity - trace["equity"])[live]
    worst = float(difference.max(initial=0.0))
    if worst > allowed:
        bar = int(found.bar[live][difference.argmax()])
        raise DataError(
            f"equity of bar {bar}: device and host differ by {worst:.6g}, allowed {allowed:.6g}; "
            "run `skillwalk verify` on this device and report the output"
        )
    total = float(found.trades["pnl"].sum())
    earned = float(found.pnl.sum())
    if abs(total - earned) > 1e-9 * (market.initial_capital + np.abs(found.pnl).sum()):
        raise DataError(
            f"trades add up to {total:.9g}, equity to {earned:.9g}; the trade ledger is broken: "
            "report this fold"
        )
    return worst
