"""The trade list of one episode in float64: average entries, reductions, flips, rolls, ruin.

A trade runs from flat, or from a flip, to flat or to the next flip. Its prices are those of the
contract in which it ends: earlier ones move with every roll's gap, which earns nothing.
"""

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
        ("entry_price", np.float64),  # average of all entries, points
        ("exit_bar", np.int64),
        ("exit_price", np.float64),  # average of all exits, the last mark included, points
        ("bars", np.int64),
        ("gross", np.float64),
        ("cost", np.float64),
        ("pnl", np.float64),
        ("reason", "U4"),  # exit, flip, ruin, open
    ]
)


@dataclass(frozen=True)
class Fills:
    """What each step of an episode did; float64[n] unless noted.

    Attributes:
        bar: int[n], bar that marks the step.
        fill_bar: int[n], bar on which an order of the step fills.
        q0: units before the fill.
        q1: units after it; the difference is what filled.
        price: fill price, points.
        mark: close of `bar`, points.
        gap: points the contract jumps at a roll, before the fill, else 0.
        trade_cost: currency, cost of the fill.
        roll_cost: currency, cost of the roll, of the trade of q0.
        ruined: bool[n], the step ended in ruin; nothing is held after it.
    """

    bar: Array
    fill_bar: Array
    q0: Array
    q1: Array
    price: Array
    mark: Array
    gap: Array
    trade_cost: Array
    roll_cost: Array
    ruined: Array


def trades(fills: Fills, mult: float) -> Array:
    """Return the `TRADE` records of an episode in the order of exits; one still open is marked.

    gross = side * mult * (units sold at their prices - units bought at theirs), so the results of
    all trades add up to the PnL of the episode.
    """
    q0, q1 = fills.q0, fills.q1
    d = q1 - q0
    flipped = q0 * q1 < 0
    opened = (q1 != 0) & ((q0 == 0) | flipped)
    closed = (q0 != 0) & ((q1 == 0) | flipped)
    marked = fills.ruined & (q1 != 0)
    marked[-1:] = q1[-1:] != 0
    after = np.cumsum(opened) - 1  # number of the trade that holds q1; of the last one when flat
    before = after - opened  # that holds q0
    count = int(np.sum(opened))

    leaves = np.where(q0 * d < 0, np.minimum(np.abs(d), np.abs(q0)), 0.0)
    enters = np.abs(d) - leaves
    left = np.where(marked, np.abs(q1), 0.0)
    share = leaves / np.where(d != 0, np.abs(d), 1.0)  # of the fill's cost, the old trade's
    # prices in the first contract, and back to the contract of the exit at the end
    shift = np.cumsum(fills.gap)
    price, mark = fills.price - shift, fills.mark - shift

    def total(trade: Array, amount: Array) -> Array:
        # before the first trade, number -1, every amount is 0
        return np.bincount(np.maximum(trade, 0), amount, max(count, 1))[:count]

    bought, outlay = total(after, enters), total(after, enters * price)
    sold = total(before, leaves) + total(after, left)
    proceeds = total(before, leaves * price) + total(after, left * mark)
    cost = total(before, fills.trade_cost * share + fills.roll_cost)
    cost += total(after, fills.trade_cost * (1 - share))

    # a fill ends a trade before the mark of the same step ends the next
    ended = np.stack([closed, marked], axis=1)
    reason = np.stack(
        [np.where(flipped, "flip", "exit"), np.where(fills.ruined, "ruin", OPEN)], axis=1
    )
    exit_shift = np.stack([shift, shift], axis=1)[ended]
    found = np.zeros(count, TRADE)
    found["side"] = np.where(q1[opened] > 0, "long", "short")
    np.maximum.at(found["units"], after[q1 != 0], np.abs(q1[q1 != 0]))
    found["entry_bar"] = fills.fill_bar[opened]
    found["entry_price"] = outlay / bought + exit_shift
    found["exit_bar"] = np.stack([fills.fill_bar, fills.bar], axis=1)[ended]
    found["exit_price"] = proceeds / sold + exit_shift
    found["bars"] = found["exit_bar"] - found["entry_bar"]
    found["gross"] = np.sign(q1[opened]) * mult * (proceeds - outlay)
    found["cost"] = cost
    found["pnl"] = found["gross"] - cost
    found["reason"] = reason[ended]
    return found
