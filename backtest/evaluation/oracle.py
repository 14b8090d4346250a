"""The best that market orders could have earned on known prices, costs included."""

from __future__ import annotations

import numpy as np

from backtest.market.layout import Array, Fill
from backtest.market.tape import Tape


def best_pnl(tape: Tape, start: int, steps: int, positions: Array) -> float:
    """Return the largest net PnL of any path of positions, currency, by dynamic programming.

    The path begins flat, trades whole changes at the market's fill price, may change at every
    bar and is marked at the last close (Bellman 1957; no volume or roll rule applies).

    Args:
        tape: bars and costs.
        start: decision bar of step 0.
        steps: number of decisions.
        positions: float64[k], units that may be held; 0 must be one of them.
    """
    p = tape.params
    bars = tape.at(np.arange(start, start + steps + 1))
    close = bars["close"].astype(np.float64)
    fills_at_close = p["fill"] == Fill.CLOSE
    price = close[:-1] if fills_at_close else bars["open"][1:].astype(np.float64)
    mult = float(p["mult"])
    crossing = mult * (float(p["half_spread"]) + float(p["slippage"]))
    notional = np.abs(price + float(p["base"])) * mult * float(p["tx_cost_multiplier"])
    fee = float(p["commission"]) + crossing + notional
    change = positions[None, :] - positions[:, None]  # from row to column
    best = np.where(positions == 0, 0.0, -np.inf)
    for t in range(steps):
        held = positions * (close[t + 1] - close[t]) * mult
        # the new units earn from the fill price on
        traded = change * (price[t] - close[t]) * mult + np.abs(change) * fee[t]
        best = np.max(best[:, None] - traded, axis=0) + held
    return float(best.max())
