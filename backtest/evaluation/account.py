"""The account of a test window in float64, rebuilt on the host from what was filled.

The device's float32 equity is for learning; every reported figure comes from here, and `reconcile`
compares the two. A roll's gap earns nothing: closes before it are shifted, as in the market.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backtest.config import Instrument, Market
from backtest.errors import DataError
from backtest.evaluation.metrics import running_peak
from backtest.evaluation.trades import Fills, trades
from backtest.features.table import FeatureTable
from backtest.market.layout import Array, End, Order

EPSILON = 2.0**-24  # relative rounding of float32
STEP_ROUNDINGS = 24  # of a step's equity, see `tolerance`
COST_ROUNDINGS = 16  # of a step's cost: inputs, products and sums, all of one sign


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

    ruined = trace["end"] == End.TERMINATED
    q1 = np.where(trace["end"] == End.DEAD, 0.0, trace["position"].astype(np.float64))
    after = np.where(ruined, 0.0, q1)  # what the next step starts with
    q0 = np.concatenate([[0.0], after[:-1]])
    d = q1 - q0
    price = fill_price(order, d, c0, rows.open[1:], rows.sigma[:-1], instrument, market)

    gross = mult * (q0 * (c1 - c0) + d * (c1 - price))
    trade_cost = np.abs(d) * unit_cost(np.abs(price), order == Order.MARKET, instrument)
    roll_fee = instrument.commission + mult * instrument.half_spread
    roll_cost = np.where(rows.roll[1:], 2 * np.abs(q0) * roll_fee, 0.0)
    cost = trade_cost + roll_cost
    equity = market.initial_capital + np.cumsum(gross - cost)
    peak = running_peak(equity, market.initial_capital)

    step = np.arange(n)
    at_close = (order == Order.MARKET) & (market.fill == "close")
    fills = Fills(
        bar=first + 1 + step,
        fill_bar=first + 1 + step - at_close,
        q0=q0,
        q1=q1,
        price=price,
        mark=c1,
        gap=gap,
        trade_cost=trade_cost,
        roll_cost=roll_cost,
        ruined=ruined,
    )
    return Account(
        bar=fills.bar,
        time=rows.time[1:],
        close=c1,
        position=q1,
        fill_price=np.where(d != 0, price, np.nan),
        gross=gross,
        cost=cost,
        equity=equity,
        drawdown=(peak - equity) / peak,
        reward=trace["reward"].astype(np.float64),
        liquidation_cost=float(
            abs(after[-1]) * unit_cost(abs(c1[-1]), market_order=True, instrument=instrument)
        ),
        trades=trades(fills, mult),
    )


def unit_cost(points: Array, market_order: Array | bool, instrument: Instrument) -> Array:
    """Return the cost of trading one unit, currency.

    Args:
        points: float64[n], |price|.
        market_order: bool[n]; a limit order pays neither spread nor slippage.
        instrument: costs and point value.
    """
    crossing = np.where(market_order, instrument.half_spread + instrument.slippage, 0.0)
    notional = points * instrument.tx_cost_multiplier
    cost: Array = instrument.commission + instrument.point_value * (crossing + notional)
    return cost


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
    """Return how far one step's equity or gross may stray from float64, currency.

    With u = 2^-24, E the largest equity and V the largest value of a position at the device's
    prices (above the base), a step rounds: the position's value before and after (4u V and u E
    each: inputs, products, sum), the roll's cash (8u V), the fill's cash (5u V), the position
    itself (u V), and the cash twice (u (E + V) each): 24u V + 4u E in all.
    """
    reach = np.abs(trace["fill_price"]).max(initial=0.0)
    value = np.abs(trace["position"]).max(initial=0.0) * instrument.point_value * reach
    equity = max(market.initial_capital, np.abs(trace["equity"]).max(initial=0.0))
    return float(STEP_ROUNDINGS * EPSILON * (equity + value))


def reconcile(found: Account, trace: Array, instrument: Instrument, market: Market) -> float:
    """Compare the account with the device's equity, gross and cost, and with its own trades.

    Every step is compared for itself: what a step loses does not hide in the rounding of a year.

    Returns:
        The largest difference between host and device equity, currency.

    Raises:
        DataError: device and host, or equity and trades, do not agree.
    """
    live = trace["end"] != End.DEAD
    bar, equity, cost = found.bar[live], found.equity[live], found.cost[live]
    gross, filled_at, held = found.gross[live], found.fill_price[live], found.position[live]
    device = {
        name: trace[name][live].astype(np.float64)
        for name in ("equity", "gross", "tx_cost", "fill_price")
    }
    start = market.initial_capital
    allowed = tolerance(trace[live], instrument, market)
    step = np.diff(equity, prepend=start), np.diff(device["equity"], prepend=start)
    _agree("equity gained", bar, *step, allowed)
    _agree("gross", bar, gross, device["gross"], allowed)
    # the device adds the base to its price, and rounds both
    points = np.abs(np.nan_to_num(filled_at)) + np.abs(device["fill_price"])
    handled = np.abs(held) + np.abs(np.concatenate([[0.0], held[:-1]]))
    room = cost + handled * unit_cost(points, market_order=True, instrument=instrument)
    _agree("cost", bar, cost, device["tx_cost"], COST_ROUNDINGS * EPSILON * room)

    total = float(found.trades["pnl"].sum())
    earned = float(found.pnl.sum())
    if not abs(total - earned) <= 1e-9 * (start + np.abs(found.pnl).sum()):
        raise DataError(
            f"trades add up to {total:.9g}, equity to {earned:.9g}; the trade ledger is broken: "
            "report this fold"
        )
    return float(np.abs(equity - device["equity"]).max(initial=0.0))


def _agree(name: str, bar: Array, host: Array, device: Array, allowed: Array | float) -> None:
    """Refuse the first step in which host and device differ by more than is allowed."""
    # not <=: a NaN on the device must not pass
    bad = ~(np.abs(host - device) <= allowed)
    if bad.any():
        at = int(np.argmax(bad))
        limit = float(np.broadcast_to(allowed, bad.shape)[at])
        raise DataError(
            f"{name} at bar {bar[at]}: host {host[at]:.9g}, device {device[at]:.9g}, allowed "
            f"difference {limit:.3g}; run `skillwalk verify` on this device and report the output"
        )
