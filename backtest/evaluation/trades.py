"""The trade list of one episode in float64: average entries, reductions, flips, rolls, ruin."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backtest.evaluation.metrics import OPEN
from backtest.market.layout import Array

TRADE = np.dtype(
    [
        ("side", "U5"),  # long, short
        ("units", np.float64),  # largest position of the trade
        ("entry_bar", np.int64),
        ("entry_price", np.float64),  # average, shifted over rolls
        ("exit_bar", np.int64),
        ("exit_price", np.float64),  # average, or the last mark
        ("bars", np.int64),
        ("gross", np.float64),
        ("cost", np.float64),
        ("pnl", np.float64),
        ("reason", "U6"),  # exit, flip, ruin, open
    ]
)


@dataclass(frozen=True)
class Fills:
    """What each step of an episode did; float64[n] unless noted.

    Attributes:
        bar: int[n], bar that marks the step.
        fill_bar: int[n], bar on which an order of the step fills.
        q0: units before the fill.
        d: units filled, signed.
        price: fill price, points.
        mark: close of `bar`, points.
        gap: points the contract jumps at a roll, else 0.
        trade_cost: currency, cost of the fill.
        roll_cost: currency, cost of the roll, of the trade of q0.
        ruined: bool[n], the step ended in ruin.
    """

    bar: Array
    fill_bar: Array
    q0: Array
    d: Array
    price: Array
    mark: Array
    gap: Array
    trade_cost: Array
    roll_cost: Array
    ruined: Array


class OpenTrade:
    """One trade while it runs."""

    def __init__(self, bar: int, units: float, price: float, cost: float) -> None:
        """Open at a fill; units are signed."""
        self.entry_bar = bar
        self.position = units
        self.entry = price
        self.largest = abs(units)
        self.cost = cost
        self.gross = 0.0
        self.sold = 0.0  # units closed so far
        self.proceeds = 0.0  # units * exit price

    def roll(self, gap: float, cost: float) -> None:
        """Carry the trade into the next contract: all its prices move by the gap."""
        self.entry += gap
        self.proceeds += self.sold * gap
        self.cost += cost

    def increase(self, units: float, price: float, cost: float) -> None:
        """Add units of the same sign; the entry price averages."""
        total = self.position + units
        self.entry = (self.position * self.entry + units * price) / total
        self.position = total
        self.largest = max(self.largest, abs(total))
        self.cost += cost

    def reduce(self, units: float, price: float, cost: float, mult: float) -> None:
        """Close some units (unsigned) at a price."""
        side = 1.0 if self.position > 0 else -1.0
        self.gross += units * (price - self.entry) * mult * side
        self.sold += units
        self.proceeds += units * price
        self.position -= side * units
        self.cost += cost

    def close(self, bar: int, price: float, mult: float, reason: str) -> tuple[object, ...]:
        """Close the rest without further cost and return the `TRADE` row."""
        side = "long" if self.position > 0 else "short"
        self.reduce(abs(self.position), price, 0.0, mult)
        return (
            side,
            self.largest,
            self.entry_bar,
            self.entry,
            bar,
            self.proceeds / self.sold,
            bar - self.entry_bar,
            self.gross,
            self.cost,
            self.gross - self.cost,
            reason,
        )


def trades(fills: Fills, mult: float) -> Array:
    """Return the `TRADE` records of an episode in the order of exits; one still open is marked."""
    rows: list[tuple[object, ...]] = []
    trade: OpenTrade | None = None
    q1 = fills.q0 + fills.d
    busy = (fills.d != 0) | (fills.gap != 0) | (fills.roll_cost != 0) | fills.ruined
    for i in np.flatnonzero(busy):
        d, price, cost = float(fills.d[i]), float(fills.price[i]), float(fills.trade_cost[i])
        bar = int(fills.fill_bar[i])
        if trade is not None:
            trade.roll(float(fills.gap[i]), float(fills.roll_cost[i]))
        if d != 0 and trade is None:
            trade = OpenTrade(bar, d, price, cost)
        elif d != 0 and trade is not None:
            if trade.position * d > 0:
                trade.increase(d, price, cost)
            elif q1[i] * trade.position > 0:
                trade.reduce(abs(d), price, cost, mult)
            else:
                share = abs(trade.position) / abs(d)
                trade.cost += cost * share
                flipped = q1[i] != 0
                rows.append(trade.close(bar, price, mult, "flip" if flipped else "exit"))
                trade = None
                if flipped:
                    trade = OpenTrade(bar, float(q1[i]), price, cost - cost * share)
        if trade is not None and fills.ruined[i]:
            rows.append(trade.close(int(fills.bar[i]), float(fills.mark[i]), mult, "ruin"))
            trade = None
    if trade is not None:
        rows.append(trade.close(int(fills.bar[-1]), float(fills.mark[-1]), mult, OPEN))
    return np.array(rows, TRADE)
