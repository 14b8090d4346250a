"""Hand-worked numbers for timing, fills, accounting and the trade ledger."""

import numpy as np
import pytest

from backtest.market.layout import Direction, End, Fill, Order
from backtest.market.walk import walk_actions
from tests.scenes import FULL, THIRD, TWO_THIRDS, action, bars, params, tape

SHORT, HOLD, LONG, FLAT = Direction


def play(records, p, *actions):
    """Walk one episode; return (states, results) without the episode axis."""
    walk = walk_actions(tape(records, p), np.array([0]), np.array(actions)[:, None, :])
    return walk.state[:, 0], walk.result[:, 0]


class TestTiming:
    def test_close_fill_earns_from_this_close_to_the_next(self):
        _, r = play(bars([100, 103, 101]), params(), action(LONG), action(HOLD))
        np.testing.assert_allclose(r["gross"], [3, -2])
        np.testing.assert_allclose(r["equity"], [1003, 1001])

    def test_next_open_fill_misses_the_gap(self):
        records = bars([100, 103, 101], open=[100, 102, 103])
        _, r = play(records, params(fill=Fill.NEXT_OPEN), action(LONG), action(FLAT))
        # bought at 102, marked at 103; sold at 103: gap 0, and the 103 -> 101 loss is missed
        np.testing.assert_allclose(r["gross"], [1, 0])
        np.testing.assert_allclose(r["fill_price"], [102, 103])

    def test_nothing_after_the_next_bar_is_read(self):
        records = bars([100, 103, 101, 99])
        changed = records.copy()
        changed[2:]["close"] *= 10
        for table in (records, changed):
            _, r = play(table[:3], params(), action(LONG), action(HOLD))
            assert r["equity"][0] == 1003

    def test_window_end_truncates_and_ruin_wins_over_it(self):
        _, r = play(bars([100, 99]), params(), action(LONG))
        assert r["end"][0] == End.TRUNCATED
        _, r = play(bars([2000, 900]), params(), action(LONG))
        assert r["end"][0] == End.TERMINATED


class TestFills:
    def test_limit_buy_needs_a_trade_through(self):
        p = params(fill=Fill.NEXT_OPEN)
        touch = bars([100, 101], open=[100, 101], low=[100, 99.5], sigma=1.0)
        _, r = play(touch, p, action(LONG, order=Order.DEEP_LIMIT))
        assert r["filled"][0] == 0  # low 99.5 only touches the limit 99.5
        through = bars([100, 101], open=[100, 101], low=[100, 99.4], sigma=1.0)
        _, r = play(through, p, action(LONG, order=Order.DEEP_LIMIT))
        assert (r["filled"][0], r["fill_price"][0]) == (1, 99.5)

    def test_limit_fills_at_the_better_of_limit_and_open(self):
        p = params(fill=Fill.NEXT_OPEN)
        _, r = play(
            bars([100, 98], open=[100, 97], low=[100, 96]), p, action(LONG, order=Order.LIMIT)
        )
        assert r["fill_price"][0] == 97
        up = bars([100, 104], open=[100, 103], high=[100, 105])
        _, r = play(up, p, action(SHORT, order=Order.LIMIT))
        assert r["fill_price"][0] == 103

    def test_unfilled_limit_leaves_the_position(self):
        s, r = play(
            bars([100, 100, 100], low=[100, 100, 100], high=[100, 100, 100]),
            params(fill=Fill.NEXT_OPEN),
            action(LONG),
            action(FLAT, order=Order.LIMIT),
        )
        assert s["position"][2] == 1
        assert r["filled"][1] == 0

    @pytest.mark.parametrize("fill, empty", [(Fill.CLOSE, 0), (Fill.NEXT_OPEN, 1)])
    def test_zero_volume_fills_nothing_on_the_bar_of_the_fill(self, fill, empty):
        for bar in (0, 1):
            records = bars([100, 101])
            records["flags"][bar] = 2
            _, r = play(records, params(fill=fill), action(LONG))
            assert (r["filled"][0] == 0) == (bar == empty)

    def test_limit_waits_for_the_volume_of_the_next_bar(self):
        records = bars([100, 101], low=[100, 90])
        records["flags"][0] = 2
        _, r = play(records, params(fill=Fill.CLOSE), action(LONG, order=Order.LIMIT))
        assert r["filled"][0] == 1

    def test_urgency_trades_a_fraction_of_the_change(self):
        s, _ = play(
            bars([100] * 3), params(), action(LONG, urgency=THIRD), action(LONG, urgency=THIRD)
        )
        np.testing.assert_allclose(s["position"], [0, 1 / 3, 5 / 9], rtol=1e-6)

    def test_magnitude_is_a_fraction_of_max_position(self):
        s, _ = play(bars([100] * 2), params(max_position=15.0), action(SHORT, TWO_THIRDS))
        assert s["position"][1] == -10

    def test_lots_round_toward_zero(self):
        p = params(max_position=3.0, lot_size=1.0)
        s, _ = play(
            bars([100] * 3), p, action(LONG, FULL, urgency=TWO_THIRDS), action(FLAT, urgency=THIRD)
        )
        np.testing.assert_array_equal(s["position"], [0, 2, 2])  # a third of 2 is no whole lot

    def test_dust_is_traded_too(self):
        steps = [action(LONG)] + [action(FLAT, urgency=TWO_THIRDS)] * 7
        s, _ = play(bars([100] * 9), params(), *steps)
        # 1, 1/3, 1/9, 1/27, 1/81, 1/243, 1/729: the next would be 0.00046 < 0.001
        assert s["position"][7] == pytest.approx(1 / 729, rel=1e-5)
        assert s["position"][8] == 0


class TestCosts:
    def test_flip_pays_for_two_units(self):
        p = params(tx_cost_multiplier=0.001)
        _, r = play(bars([100, 100, 100]), p, action(LONG), action(SHORT))
        np.testing.assert_allclose(r["tx_cost"], [0.1, 0.2], rtol=1e-6)  # 10 bp of 100 and of 200

    def test_es_point_minus_commissions(self):
        p = params(mult=50.0, commission=2.5)
        s, _ = play(bars([5000, 5001, 5001]), p, action(LONG), action(FLAT))
        assert s["realized_pnl"][2] == 45  # 1 point * 50 - 2 * 2.5

    def test_half_the_spread_on_each_side_of_market_orders(self):
        p = params(half_spread=0.5, slippage=0.25, mult=2.0)
        _, r = play(bars([100] * 3), p, action(LONG), action(FLAT))
        np.testing.assert_allclose(r["tx_cost"], [1.5, 1.5])

    def test_limit_orders_pay_no_spread(self):
        p = params(half_spread=0.5, slippage=0.25, commission=1.0)
        _, r = play(bars([100, 100], low=[100, 90]), p, action(LONG, order=Order.LIMIT))
        assert r["tx_cost"][0] == 1

    def test_notional_cost_adds_the_base_back(self):
        p = params(base=5000.0, tx_cost_multiplier=1e-5)
        _, r = play(bars([-10, -10]), p, action(LONG))
        assert r["tx_cost"][0] == pytest.approx(0.0499, rel=1e-6)

    def test_negative_price_costs_its_absolute_notional(self):
        p = params(tx_cost_multiplier=0.001)
        _, r = play(bars([-37.63, -37.63]), p, action(LONG))
        assert r["tx_cost"][0] == pytest.approx(0.03763, rel=1e-6)


class TestNegativePrices:
    """WTI, 20 April 2020: 18.27 -> -37.63, 1,000 barrels a contract."""

    def test_short_earns_and_long_loses_in_points(self):
        p = params(mult=1000.0, initial_capital=100_000.0)
        _, r = play(bars([18.27, -37.63]), p, action(SHORT))
        assert r["gross"][0] == pytest.approx(55_900, abs=0.01)
        _, r = play(bars([18.27, -37.63]), p, action(LONG))
        assert r["gross"][0] == pytest.approx(-55_900, abs=0.01)

    def test_equity_below_zero_terminates_with_a_finite_reward(self):
        p = params(mult=1000.0, initial_capital=20_000.0)
        s, r = play(bars([18.27, -37.63]), p, action(LONG))
        assert r["end"][0] == End.TERMINATED
        assert r["equity"][0] == pytest.approx(-35_900, abs=0.01)
        assert all(np.isfinite(r[name]).all() for name in r.dtype.names)
        assert s["position"][1] == 0


class TestLedger:
    def test_flip_realises_the_old_trade_and_opens_the_rest(self):
        p = params()
        s, r = play(bars([100, 90, 95]), p, action(SHORT), action(LONG, THIRD))
        # short 1 at 100, flips at 90 to long 1/3: realises 10, then 1/3 * 5 unrealised
        assert r["trade_result"][1] == 10
        assert r["segment_complete"].tolist() == [0, 1]
        assert s["realized_pnl"][2] == 10
        assert s["entry_price"][2] == 90
        assert r["equity"][1] == pytest.approx(1000 + 10 + 5 / 3, rel=1e-6)

    def test_costs_of_a_flip_are_split_by_units(self):
        p = params(commission=3.0)
        s, r = play(bars([100, 110, 110]), p, action(LONG), action(SHORT))
        # in: 3; the flip's 6 belong half to each trade
        assert r["trade_result"][1] == 10 - 3 - 3
        assert s["trade_pnl"][2] == -3
        assert s["realized_pnl"][2] == 10 - 9

    def test_increase_averages_the_entry(self):
        s, _ = play(bars([100, 110, 110]), params(), action(LONG, THIRD), action(LONG))
        assert s["entry_price"][2] == pytest.approx((100 + 2 * 110) / 3, rel=1e-6)

    def test_reduction_realises_its_share(self):
        s, r = play(bars([100, 112, 112]), params(), action(LONG), action(LONG, THIRD))
        assert s["trade_pnl"][2] == pytest.approx(8, rel=1e-6)  # 2/3 of 12
        assert r["segment_complete"][1] == 0
        assert s["entry_price"][2] == 100

    def test_ruin_closes_the_trade(self):
        s, r = play(bars([1000, 1500, 400]), params(commission=1.0), action(SHORT), action(HOLD))
        assert r["equity"][0] == 499  # 1000 - 1 - 500
        p = params(commission=1.0, ruin_level=499.0)
        s, r = play(bars([1000, 1500, 400]), p, action(SHORT), action(HOLD))
        assert r["end"].tolist() == [End.TERMINATED, End.DEAD]
        assert r["segment_complete"][0] == 1
        assert s["realized_pnl"][1] == -501
        for name in ("position", "entry_price", "trade_pnl", "hold_time", "aux_at_entry"):
            assert s[name][1] == 0
        assert s["cash"][1] == s["portfolio_val"][1] == s["prev_equity"][1] == 499

    def test_position_open_at_the_end_is_marked_not_closed(self):
        s, r = play(bars([100, 105]), params(commission=1.0), action(LONG))
        assert r["end"][0] == End.TRUNCATED
        assert r["segment_complete"][0] == 0
        assert s["position"][1] == 1
        assert r["equity"][0] == 1004

    def test_equity_is_capital_plus_realised_plus_unrealised(self):
        rng = np.random.default_rng(3)
        records = bars(100 + np.cumsum(rng.normal(0, 1, 400)))
        moves = [action(rng.integers(4), rng.integers(3), 0, rng.integers(3)) for _ in range(399)]
        s, _ = play(records, params(commission=0.1, tx_cost_multiplier=1e-4), *moves)
        unrealised = s["position"] * (records["close"] - s["entry_price"])
        np.testing.assert_allclose(
            s["portfolio_val"], 1000 + s["realized_pnl"] + unrealised, atol=2e-2
        )


class TestRoll:
    """On the roll bar the next contract opens 5 points above the last close."""

    @pytest.mark.parametrize("side, sign", [(LONG, 1), (SHORT, -1)])
    def test_gap_earns_nothing_and_the_roll_costs_two_trades(self, side, sign):
        p = params(commission=1.0, half_spread=0.25, mult=2.0)
        records = bars([100, 100, 106], open=[100, 100, 105])
        records["flags"][2] = 1
        s, r = play(records, p, action(side), action(HOLD))
        assert r["gross"][1] == sign * 2 * 1  # only 105 -> 106
        assert r["tx_cost"][1] == 2 * (1 + 2 * 0.25)
        assert s["entry_price"][2] == 105
        assert r["equity"][1] == 1000 - 1.5 + sign * 2 - 3

    def test_flat_pays_nothing(self):
        records = bars([100, 100, 106], open=[100, 100, 105])
        records["flags"][2] = 1
        _, r = play(records, params(commission=1.0), action(FLAT), action(FLAT))
        assert r["tx_cost"][1] == 0
        assert r["equity"][1] == 1000

    def test_flip_on_a_roll_bar(self):
        p = params(commission=1.0)
        records = bars([100, 102, 108], open=[100, 100, 107])
        records["flags"][2] = 1
        s, r = play(records, p, action(LONG), action(SHORT))
        # old trade: +2 points, fee 1 in, roll 2, half of the flip's 2; new trade short at 107
        assert r["trade_result"][1] == 2 - 1 - 2 - 1
        assert s["entry_price"][2] == 107
        assert r["gross"][1] == -1
        assert r["equity"][1] == 1000 - 1 + 2 - 4 - 1


class TestCounters:
    def test_flat_and_hold_count_from_the_new_position(self):
        steps = [action(FLAT), action(LONG), action(HOLD), action(FLAT)]
        s, _ = play(bars([100] * 5), params(), *steps)
        np.testing.assert_array_equal(s["flat_counter"], [0, 1, 0, 0, 1])
        np.testing.assert_array_equal(s["hold_time"], [0, 0, 1, 2, 0])

    @pytest.mark.parametrize("formula, held", [(0, 3), (1, 1)])
    def test_a_flip_restarts_the_calibrated_hold_time(self, formula, held):
        steps = [action(LONG), action(HOLD), action(SHORT)]
        s, _ = play(bars([100] * 4), params(formula=formula), *steps)
        assert s["hold_time"][3] == held


def test_one_charge_a_fill_of_many_units():
    """The commission is per unit: Q units cost Q times it, once a fill."""
    p = params(commission=2.0, max_position=5.0)
    _, r = play(bars([100] * 3), p, action(LONG), action(HOLD))
    np.testing.assert_array_equal(r["tx_cost"], [10, 0])
