"""The trade list on hand-worked fills, and against a ledger that walks fill by fill."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backtest.evaluation.trades import TRADE, Fills, trades

MULT = 2.0


def fills_of(positions, price, mark=None, *, first=100, **changes):
    """Return the fills of positions held after each step, at one cost of 1 a unit."""
    q1 = np.array(positions, float)
    n = len(q1)
    q0 = np.concatenate([[0.0], q1[:-1]])
    price = np.array(price, float)
    columns = {
        "bar": first + np.arange(n),
        "fill_bar": first + np.arange(n),
        "q0": q0,
        "q1": q1,
        "price": price,
        "mark": price if mark is None else np.array(mark, float),
        "gap": np.zeros(n),
        "trade_cost": np.abs(q1 - q0),
        "roll_cost": np.zeros(n),
        "ruined": np.zeros(n, bool),
    }
    return Fills(**columns | {name: np.array(value) for name, value in changes.items()})


def listed(fills):
    """Return the trades as tuples in the order of `TRADE`."""
    return [tuple(row) for row in trades(fills, MULT).tolist()]


def test_nothing_traded():
    found = trades(fills_of([0, 0], [100, 100]), MULT)
    assert found.dtype == TRADE
    assert len(found) == 0


@pytest.mark.parametrize(("side", "name"), [(1, "long"), (-1, "short")])
def test_one_trade_each_side(side, name):
    fills = fills_of([0, side, side, 0], [100, 100, 105, 103])
    assert listed(fills) == [
        (name, 1, 101, 100, 103, 103, 2, 6 * side, 2, 6 * side - 2, "exit"),
    ]


def test_an_increase_averages_the_entry():
    # 1 at 100, 2 more at 106: three at 104, out at 105
    fills = fills_of([1, 3, 0], [100, 106, 105])
    assert listed(fills) == [("long", 3, 100, 104, 102, 105, 2, 6, 6, 0, "exit")]


def test_a_partial_reduction_averages_the_exit():
    # short 3 at 100; 1 back at 94, 2 at 97: out at 96 on average
    fills = fills_of([-3, -2, 0], [100, 94, 97])
    assert listed(fills) == [("short", 3, 100, 100, 102, 96, 2, 24, 6, 18, "exit")]


def test_reduce_then_increase():
    # bought 2 at 100 and 1 at 120, sold 1 at 110 and 2 at 130: 3 units, 370 - 320
    fills = fills_of([2, 1, 2, 0], [100, 110, 120, 130])
    ((side, units, _, entry, _, exit_, _, gross, *_),) = listed(fills)
    assert (side, units) == ("long", 2)
    assert entry == pytest.approx(320 / 3)
    assert exit_ == pytest.approx(370 / 3)
    assert gross == MULT * 50


def test_a_flip_closes_one_and_opens_the_other():
    # case: -1 -> +0.5 realises one move of one unit; 1.5 units cost 1.5, 1 of it the old trade's
    fills = fills_of([-1, 0.5, 0], [100, 110, 104])
    assert listed(fills) == [
        ("short", 1, 100, 100, 101, 110, 1, -20, 2, -22, "flip"),
        ("long", 0.5, 101, 110, 102, 104, 1, -6, 1, -7, "exit"),
    ]


def test_open_at_the_end_is_marked():
    fills = fills_of([1, 1], [100, 0], mark=[101, 104])
    assert listed(fills) == [("long", 1, 100, 100, 101, 104, 1, 8, 1, 7, "open")]


def test_opened_by_the_last_step():
    fills = fills_of([0, -2], [100, 100], mark=[100, 99])
    assert listed(fills) == [("short", 2, 101, 100, 101, 99, 0, 4, 2, 2, "open")]


def test_ruin_closes_at_the_mark_without_further_cost():
    fills = fills_of(
        [1, 1, 0, 0], [100, 0, 0, 0], mark=[100, 40, 90, 90], q0=[0, 1, 0, 0],
        trade_cost=[1, 0, 0, 0], ruined=[False, True, False, False],
    )  # fmt: skip
    assert listed(fills) == [("long", 1, 100, 100, 101, 40, 1, -120, 1, -121, "ruin")]


def test_a_flip_into_ruin():
    fills = fills_of([1, -1], [100, 100], mark=[100, 160], ruined=[False, True])
    assert listed(fills) == [
        ("long", 1, 100, 100, 101, 100, 1, 0, 2, -2, "flip"),
        ("short", 1, 101, 100, 101, 160, 0, -120, 1, -121, "ruin"),
    ]


@pytest.mark.parametrize("side", [1, -1])
def test_a_roll_moves_the_prices_of_the_trade(side):
    # in at 100, half out at 102; the next contract is 10 higher: 110 and 112; the rest out at 115
    fills = fills_of(
        [2 * side, side, side, 0], [100, 102, 0, 115], gap=[0, 0, 10, 0], roll_cost=[0, 0, 3, 0]
    )
    ((_, units, _, entry, _, exit_, _, gross, cost, _, _),) = listed(fills)
    assert (units, entry, exit_) == (2, 110, 113.5)
    assert gross == side * MULT * (2 + 5)
    assert cost == 2 + 2 + 3


def test_a_flip_on_the_bar_of_a_roll():
    # the roll belongs wholly to the old trade, the fill's cost to both by units
    fills = fills_of(
        [1, -1], [100, 111], mark=[100, 109], gap=[0, 10], roll_cost=[0, 4], trade_cost=[1, 2]
    )
    assert listed(fills) == [
        ("long", 1, 100, 110, 101, 111, 1, 2, 6, -4, "flip"),
        ("short", 1, 101, 111, 101, 109, 0, 4, 1, 3, "open"),
    ]


def test_a_roll_while_flat_moves_nothing():
    fills = fills_of([1, 0, 0, 1], [100, 101, 0, 115], gap=[0, 0, 10, 0])
    assert [row[3:6:2] for row in listed(fills)] == [(100, 101), (115, 115)]


def test_a_fill_at_the_close_belongs_to_the_bar_before_the_mark():
    fills = fills_of([1, 0], [100, 103], mark=[103, 101], fill_bar=[99, 100])
    ((_, _, entry_bar, _, exit_bar, _, bars, *_),) = listed(fills)
    assert (entry_bar, exit_bar, bars) == (99, 100, 1)


def walked(fills, mult):
    """The same list from a ledger that takes one fill after the other."""
    rows, trade = [], None

    def close(bar, price, reason):
        rows.append(
            (
                trade["side"],
                trade["largest"],
                trade["bar"],
                bar,
                trade["gross"] + trade["held"] * (price - trade["entry"]) * mult,
                trade["cost"],
                reason,
            )
        )

    def fresh(i, units, cost):
        return {
            "side": "long" if units > 0 else "short",
            "largest": abs(units),
            "bar": fills.fill_bar[i],
            "held": units,
            "entry": fills.price[i],
            "gross": 0.0,
            "cost": cost,
        }

    for i, (q0, q1) in enumerate(zip(fills.q0, fills.q1, strict=True)):
        d, price, cost = q1 - q0, fills.price[i], fills.trade_cost[i]
        if trade:
            trade["entry"] += fills.gap[i]
            trade["cost"] += fills.roll_cost[i]
        if trade and q0 * d > 0:
            trade["entry"] = (q0 * trade["entry"] + d * price) / q1
            trade |= {"held": q1, "cost": trade["cost"] + cost}
            trade["largest"] = max(trade["largest"], abs(q1))
        elif trade and q0 * q1 > 0:
            trade["gross"] += -d * (price - trade["entry"]) * mult
            trade |= {"held": q1, "cost": trade["cost"] + cost}
        elif trade and d != 0:
            trade["cost"] += cost * abs(q0 / d)
            close(fills.fill_bar[i], price, "flip" if q1 else "exit")
            trade = fresh(i, q1, cost * abs(q1 / d)) if q1 else None
        elif d != 0:
            trade = fresh(i, q1, cost)
        if trade and (fills.ruined[i] or i == len(fills.q0) - 1):
            close(fills.bar[i], fills.mark[i], "ruin" if fills.ruined[i] else "open")
            trade = None
    return rows


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), steps=st.integers(1, 40), ruin=st.booleans())
def test_any_fills_give_the_trades_of_a_ledger(seed, steps, ruin):
    rng = np.random.default_rng(seed)
    q1 = rng.choice([-2.0, -1.0, -0.3, 0.0, 0.7, 1.0, 2.0], steps)
    ruined = np.zeros(steps, bool)
    if ruin:
        ruined[steps // 2] = True
        q1[steps // 2 + 1 :] = 0
    q0 = np.concatenate([[0.0], np.where(ruined, 0, q1)[:-1]])
    gap = np.where(rng.random(steps) < 0.2, rng.normal(0, 5, steps), 0)
    fills = fills_of(
        q1,
        rng.normal(0, 20, steps),
        rng.normal(0, 20, steps),
        q0=q0,
        gap=gap,
        roll_cost=np.where(gap != 0, np.abs(q0), 0),
        trade_cost=np.abs(q1 - q0) * 0.1,
        ruined=ruined,
    )
    found, expected = trades(fills, MULT), walked(fills, MULT)
    names = ("side", "units", "entry_bar", "exit_bar", "gross", "cost", "reason")
    assert len(found) == len(expected)
    for name, column in zip(names, zip(*expected, strict=True), strict=bool(expected)):
        if found[name].dtype.kind == "U":
            assert found[name].tolist() == list(column)
        else:
            np.testing.assert_allclose(found[name], column, atol=1e-9)
    np.testing.assert_allclose(found["pnl"], found["gross"] - found["cost"])
    np.testing.assert_array_equal(found["bars"], found["exit_bar"] - found["entry_bar"])
    paid = fills.trade_cost.sum() + fills.roll_cost.sum()
    assert found["cost"].sum() == pytest.approx(paid)
