"""The float64 account: hand-worked tables, and agreement with the float32 market it recomputes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backtest.config import Instrument, Market
from backtest.errors import DataError
from backtest.evaluation.account import EPSILON, account, reconcile, tolerance
from backtest.market.layout import Direction, End, Order
from backtest.market.rough import rough_actions
from backtest.market.walk import walk_actions, walk_targets
from tests.tables import rough_table, table_of, tape_of

SHORT, HOLD, LONG, FLAT = Direction
FREE = Instrument(tx_cost_multiplier=0.0)
# a unit costs 1 + 2*(0.5 + 0.25) + 2*0.01*|price| by market order: 2.5 + 0.02*|price|
DEAR = Instrument(
    point_value=2.0,
    max_position=3.0,
    commission=1.0,
    half_spread=0.5,
    slippage=0.25,
    tx_cost_multiplier=0.01,
)


def play(table, targets, instrument=FREE, **market):
    """Walk target positions from the table's first bar; return the account and the trace."""
    rules = Market(**{"initial_capital": 1000.0} | market)
    tape = tape_of(table, instrument, rules)
    positions = np.array(targets, np.float32)[:, None]
    trace = walk_targets(tape, np.array([tape.start]), positions).result[:, 0]
    found = account(trace, None, table, tape.start, instrument, rules)
    reconcile(found, trace, instrument, rules)
    return found, trace


def act(table, actions, instrument=FREE, **market):
    """Walk actions (direction, magnitude, order, urgency) from the table's first bar."""
    rules = Market(**{"initial_capital": 1000.0} | market)
    tape = tape_of(table, instrument, rules)
    actions = np.array(actions)
    trace = walk_actions(tape, np.array([tape.start]), actions[:, None, :]).result[:, 0]
    found = account(trace, actions[:, 2], table, tape.start, instrument, rules)
    reconcile(found, trace, instrument, rules)
    return found, trace


class TestHandWorked:
    def test_long_at_the_next_open(self):
        table = table_of([100, 102, 104, 101], [100, 100, 103, 102], first_bar=50)
        found, _ = play(table, [1, 1, 0], DEAR)
        np.testing.assert_array_equal(found.bar, [51, 52, 53])
        np.testing.assert_array_equal(found.time, table.time[1:])
        np.testing.assert_array_equal(found.position, [1, 1, 0])
        np.testing.assert_array_equal(found.fill_price, [100, np.nan, 102])
        # 2*(102 - 100), 2*(104 - 102), 2*((101 - 104) - (101 - 102))
        np.testing.assert_allclose(found.gross, [4, 4, -4])
        np.testing.assert_allclose(found.cost, [4.5, 0, 4.54])
        np.testing.assert_allclose(found.equity, [999.5, 1003.5, 994.96])
        np.testing.assert_allclose(found.pnl, found.gross - found.cost)
        np.testing.assert_allclose(found.drawdown, [0.5 / 1000, 0, 8.54 / 1003.5])
        assert found.liquidation_cost == 0

    def test_a_fill_at_the_close_earns_from_it(self):
        table = table_of([100, 103, 101, 99], first_bar=50)
        found, _ = play(table, [1, -1, 0], fill="close")
        np.testing.assert_array_equal(found.fill_price, [100, 103, 101])
        np.testing.assert_allclose(found.gross, [3, 2, 0])

    def test_a_flip_trades_two_units_and_pays_for_two(self):
        # +1 -> -1 at 100, 10 bp: a cost of 0.20, not 0.10
        table = table_of([100, 100, 100])
        found, _ = play(table, [1, -1], Instrument(tx_cost_multiplier=0.001))
        np.testing.assert_allclose(found.cost, [0.1, 0.2])

    def test_commission_is_per_unit(self):
        table = table_of([100, 100, 100])
        fee = Instrument(max_position=15.0, commission=0.5, tx_cost_multiplier=0.0)
        found, _ = play(table, [15, 5], fee)
        np.testing.assert_allclose(found.cost, [7.5, 5.0])

    def test_half_the_spread_each_way(self):
        # 99 units on a flat market at 100, spread 1 %: 49.5 at entry and at exit
        table = table_of([100, 100, 100])
        wide = Instrument(max_position=99.0, half_spread=0.5, tx_cost_multiplier=0.0)
        found, _ = play(table, [99, 0], wide)
        np.testing.assert_allclose(found.cost, [49.5, 49.5])

    def test_a_limit_order_pays_no_spread_and_takes_the_better_price(self):
        # limit 0.5 sigma below 100; the bar opens at 99.2, below 99.5, and trades through it
        table = table_of(
            [100, 99, 103], [100, 99.2, 103.5], low=[100, 98, 102], high=[100, 100, 104]
        )
        buy, sell = (LONG, 2, Order.DEEP_LIMIT, 2), (FLAT, 2, Order.DEEP_LIMIT, 2)
        found, _ = act(table, [buy, sell], DEAR)
        # sold at the open 103.5, above the limit 99.5; DEAR holds 3 units of 2 a point
        np.testing.assert_allclose(found.fill_price, [99.2, 103.5])
        np.testing.assert_allclose(found.cost, [3 * (1 + 0.02 * 99.2), 3 * (1 + 0.02 * 103.5)])
        np.testing.assert_allclose(found.pnl.sum(), 6 * 4.3 - found.cost.sum())

    def test_a_limit_order_that_is_not_reached_does_nothing(self):
        table = table_of([100, 101, 102], low=[100, 100, 101])
        found, _ = act(table, [(LONG, 2, Order.LIMIT, 2), (LONG, 2, Order.LIMIT, 2)])
        np.testing.assert_array_equal(found.fill_price, [np.nan, np.nan])
        np.testing.assert_array_equal(found.equity, [1000, 1000])
        assert len(found.trades) == 0

    @pytest.mark.parametrize("side", [1, -1])
    def test_the_gap_of_a_roll_earns_nothing_and_rolling_costs(self, side):
        # the new contract opens 10 higher and gains 1
        table = table_of([100, 100, 111, 111], [100, 100, 110, 111], roll=[0, 0, 1, 0])
        found, _ = play(table, [side, side, side], DEAR)
        np.testing.assert_allclose(found.gross, [0, 2 * side, 0])
        # 2 units traded at 1 + 2*0.5 each, no slippage
        np.testing.assert_allclose(found.cost, [4.5, 4, 0])

    def test_a_flip_on_the_bar_of_a_roll(self):
        table = table_of([100, 100, 112], [100, 100, 110], roll=[0, 0, 1])
        found, _ = play(table, [1, -1], DEAR)
        np.testing.assert_allclose(found.gross, [0, -4])  # short from 110 to 112
        np.testing.assert_allclose(found.cost, [4.5, 4 + 2 * (2.5 + 2.2)])
        np.testing.assert_array_equal(found.fill_price, [100, 110])

    def test_a_roll_with_a_fill_at_the_close(self):
        table = table_of([100, 100, 112], [100, 100, 110], roll=[0, 0, 1])
        found, _ = play(table, [0, 1], fill="close")
        np.testing.assert_allclose(found.fill_price[1], 110)  # the close in the new contract
        np.testing.assert_allclose(found.gross, [0, 2])

    def test_prices_below_zero(self):
        # WTI May 2020 on 2020-04-20
        oil = Instrument(point_value=1000.0, tx_cost_multiplier=1e-5)
        table = table_of([18.27, 18.27, -37.63], [18.27, 18.27, 18.27])
        found, _ = play(table, [-1, 0], oil, initial_capital=1e6, fill="close")
        np.testing.assert_allclose(found.gross[0], 0)
        for side in (1, -1):
            found, _ = play(table, [side, side], oil, initial_capital=1e6)
            np.testing.assert_allclose(found.gross.sum(), -side * 55_900)
            # the notional that is charged is that of the entry, and of |-37.63| at the end
            np.testing.assert_allclose(found.cost.sum(), 0.1827)
            np.testing.assert_allclose(found.liquidation_cost, 0.3763)

    def test_ruin_ends_it(self):
        table = table_of([2000, 2000, 900, 3000, 3000])
        found, trace = play(table, [1, 1, 1, 1])
        assert trace["end"].tolist() == [End.RUNNING, End.TERMINATED, End.DEAD, End.DEAD]
        np.testing.assert_allclose(found.equity, [1000, -100, -100, -100])
        np.testing.assert_array_equal(found.position, [1, 1, 0, 0])
        np.testing.assert_allclose(found.drawdown, [0, 1.1, 1.1, 1.1])
        np.testing.assert_array_equal(found.fill_price, [2000, np.nan, np.nan, np.nan])
        assert found.liquidation_cost == 0
        assert found.trades["reason"].tolist() == ["ruin"]

    def test_an_open_position_is_marked_and_its_liquidation_reported_beside(self):
        table = table_of([100, 110, 120])
        found, _ = play(table, [2, 2], DEAR)
        np.testing.assert_allclose(found.gross, [40, 40])
        np.testing.assert_allclose(found.liquidation_cost, 2 * (2.5 + 0.02 * 120))
        assert found.equity[-1] == pytest.approx(1000 + 80 - 2 * 4.5)

    def test_no_volume_no_fill(self):
        table = table_of([100, 110, 120], volume=[1, 0, 1])
        found, _ = play(table, [1, 1])
        np.testing.assert_array_equal(found.position, [0, 1])
        np.testing.assert_allclose(found.gross, [0, 10])


INSTRUMENTS = [
    # (base, points a bar, capital, instrument)
    (7.5, 1.2, 25.0, Instrument(point_value=1.25, max_position=3.0)),
    (1200.0, 12.0, 1e5, Instrument(point_value=5.0, max_position=15.0, lot_size=1.0)),
    (1e5, 20.0, 1e5, Instrument(point_value=50.0, max_position=1.0)),
    (10.0, 0.5, 1e6, Instrument(point_value=1000.0, max_position=7.0)),
]
COSTS = {"commission": 0.37, "half_spread": 0.0173, "slippage": 0.011}


def random_walks(place, seed, fill, steps, episodes=1):
    """Yield (trace, account) of random actions on rough bars, and the settings."""
    base, step, capital, instrument = INSTRUMENTS[place]
    instrument = instrument.model_copy(update=COSTS)
    rules = Market(initial_capital=capital, fill=fill)
    table = rough_table(steps + 1, seed, base, step)
    actions = rough_actions(steps, episodes, seed)
    tape = tape_of(table, instrument, rules)
    traces = walk_actions(tape, np.zeros(episodes, int), actions).result
    for trace, order in zip(traces.T, actions[:, :, 2].T, strict=True):
        found = account(trace, order, table, 0, instrument, rules)
        yield trace, found, instrument, rules


@settings(max_examples=12, deadline=None)
@given(
    place=st.integers(0, len(INSTRUMENTS) - 1),
    seed=st.integers(0, 10_000),
    fill=st.sampled_from(["next_open", "close"]),
)
def test_random_walks_agree_with_the_market(place, seed, fill):
    for trace, found, instrument, rules in random_walks(place, seed, fill, 80, episodes=8):
        drift = reconcile(found, trace, instrument, rules)
        assert drift <= tolerance(trace, instrument, rules) * len(trace)
        assert found.equity[-1] == pytest.approx(
            rules.initial_capital + found.trades["pnl"].sum(), rel=1e-9
        )
        # the market's own ledger: results of the trades that a fill closed, in their order
        by_fill = found.trades[np.isin(found.trades["reason"], ["exit", "flip"])]
        ruin = trace["end"] == End.TERMINATED
        assert np.sum(found.trades["reason"] == "ruin") <= np.sum(ruin)
        closed = (trace["segment_complete"] == 1) & ~(ruin & (trace["trade_result"] == 0))
        results = trace["trade_result"][closed]
        allowed = tolerance(trace, instrument, rules)
        np.testing.assert_allclose(by_fill["pnl"], results, rtol=0, atol=allowed)


class TestReconcile:
    """What a device could get wrong, on the fold of the shipped profile: 100k, 15 units of 5."""

    @pytest.fixture
    def walked(self):
        return next(random_walks(1, 3, "next_open", steps=252))

    def refused(self, walked, changed):
        _, found, instrument, rules = walked
        with pytest.raises(DataError) as error:
            reconcile(found, changed, instrument, rules)
        return str(error.value)

    def test_it_leaves_room(self, walked):
        trace, found, instrument, rules = walked
        rng = np.random.default_rng(0)
        for name in ("equity", "gross", "tx_cost"):
            trace = trace.copy()
            trace[name] *= 1 + EPSILON * rng.choice([-1, 1], len(trace))
        reconcile(found, trace, instrument, rules)

    def test_one_missing_half_spread(self, walked):
        trace, found, instrument, _ = walked
        fills = np.flatnonzero(~np.isnan(found.fill_price))
        at = fills[np.abs(np.diff(found.position, prepend=0)[fills]).argmin()]
        units = abs(np.diff(found.position, prepend=0)[at])
        missing = units * instrument.point_value * instrument.half_spread
        changed = trace.copy()
        changed["tx_cost"][at] -= missing
        message = self.refused(walked, changed)
        assert "cost" in message
        assert f"bar {found.bar[at]}" in message

    def test_a_cost_that_never_reached_the_cash(self, walked):
        trace, found, _, _ = walked
        changed = trace.copy()
        at = int(np.argmax(found.cost))
        changed["equity"][at:] += found.cost[at]
        assert f"equity gained at bar {found.bar[at]}" in self.refused(walked, changed)

    def test_a_fill_one_tick_off(self, walked):
        trace, found, instrument, _ = walked
        at = int(np.argmax(np.abs(np.diff(found.position, prepend=0))))
        changed = trace.copy()
        changed["gross"][at] += found.position[at] * instrument.point_value * instrument.tick_size
        assert "gross" in self.refused(walked, changed)

    @pytest.mark.parametrize("name", ["equity", "gross", "tx_cost"])
    def test_not_a_number(self, walked, name):
        changed = walked[0].copy()
        changed[name][7] = np.nan
        self.refused(walked, changed)

    def test_trades_that_do_not_add_up(self, walked):
        trace, found, _, _ = walked
        found.trades["pnl"][0] += 0.01
        assert "trades add up" in self.refused(walked, trace)
