"""Orders and fills: from an action to the units traded and the price paid.

NumPy float32 over episodes; `opencl/kernels/fill.cl` is the twin, same names, same order.
"""

from __future__ import annotations

import numpy as np

from backtest.market.layout import Array, BarFlag, Direction, Fill, Order

# A position below this fraction of max_position is closed with the trade that leaves it.
DUST = 0.001


def target_position(p: Array, position: Array, action: Array) -> Array:
    """Return the position an action asks for, float32[n], units.

    Args:
        p: one `MarketParams` record.
        position: float32[n], units held.
        action: integers [n, 4]: direction, magnitude, order, urgency.
    """
    direction = action[:, 0]
    size = p["magnitude"][action[:, 1]] * p["max_position"]
    target = np.where(direction == Direction.SHORT, -size, np.float32(0))
    target = np.where(direction == Direction.LONG, size, target)
    return np.where(direction == Direction.HOLD, position, target)


def position_change(p: Array, position: Array, target: Array, urgency: Array) -> Array:
    """Return the units to trade now, float32[n], signed: whole lots, and no dust left behind.

    Args:
        p: one `MarketParams` record.
        position: float32[n], units held.
        target: float32[n], units wanted in the end.
        urgency: float32[n], fraction of the remaining change to trade now.
    """
    delta = (target - position) * urgency
    if p["lot_size"] > 0:
        delta = np.trunc(delta / p["lot_size"]) * p["lot_size"]
    dust = np.abs(position + delta) < np.float32(DUST) * p["max_position"]
    return np.where(dust, -position, delta)


def at_close(p: Array, order: Array) -> Array:
    """Return whether an order trades at the close of its own bar, bool[n]."""
    close: Array = (order == Order.MARKET) & (p["fill"] == Fill.CLOSE)
    return close


def order_fill(
    p: Array, bar: Array, nxt: Array, c0: Array, delta: Array, order: Array
) -> tuple[Array, Array]:
    """Return (units filled, fill price), float32[n] each.

    A limit order is good for the next bar only and needs a trade *through* its price; it then
    fills at the better of its price and the open. Where nothing fills the price is close[b+1].

    Args:
        p: one `MarketParams` record.
        bar: `Bar` records [n] of the decision.
        nxt: `Bar` records [n] of the bar after it.
        c0: float32[n], close of the decision bar, shifted over a roll, points above the base.
        delta: float32[n], units wanted.
        order: integers [n], `Order`.
    """
    buy = delta > 0
    distance = p["offset"][order] * bar["sigma"]
    limit = np.where(buy, c0 - distance, c0 + distance)
    through = np.where(buy, nxt["low"] < limit, nxt["high"] > limit)
    better = np.where(buy, np.minimum(limit, nxt["open"]), np.maximum(limit, nxt["open"]))
    market = order == Order.MARKET
    close = at_close(p, order)
    price = np.where(close, c0, np.where(market, nxt["open"], better))
    flags = np.where(close, bar["flags"], nxt["flags"])
    fills = (delta != 0) & ((flags & BarFlag.NO_VOLUME) == 0) & (market | through)
    return np.where(fills, delta, np.float32(0)), np.where(fills, price, nxt["close"])
