"""Hand-worked reward components, literal and calibrated, and their signs on known series."""

import numpy as np
import pytest

from backtest.market.layout import COMPONENTS, Direction, End, Fill, Formula
from backtest.market.reward import weighted_terms
from backtest.market.walk import walk_actions
from tests.scenes import THIRD, action, bars, params, tape

SHORT, HOLD, LONG, FLAT = Direction
COMPOSITE, CALIBRATED = Formula.COMPOSITE, Formula.CALIBRATED


def play(records, p, actions, aux=None):
    walk = walk_actions(tape(records, p, aux=aux), np.array([0]), np.array(actions)[:, None, :])
    return walk.state[:, 0], walk.result[:, 0]


class TestRegime:
    @pytest.mark.parametrize("adx, trend", [(0, 0.5), (12.5, 0.5), (25, 1), (40, 1.6), (90, 2)])
    def test_trend_is_raw_adx_over_25(self, adx, trend):
        _, r = play(bars([100, 100], adx=adx), params(), [action(FLAT)])
        assert r["trend"][0] == pytest.approx(trend)

    @pytest.mark.parametrize("formula, vol", [(COMPOSITE, 0.6), (CALIBRATED, 2.0)])
    def test_vol_reference_differs(self, formula, vol):
        _, r = play(bars([100, 100], cusum=0.3), params(formula=formula), [action(FLAT)])
        assert r["vol"][0] == pytest.approx(vol)

    def test_the_decision_bar_sets_the_regime(self):
        _, r = play(bars([100, 100], adx=[25, 50]), params(), [action(FLAT)])
        assert r["trend"][0] == 1


class TestLiteral:
    P = params(formula=COMPOSITE, loss_aversion=1.5)

    def test_first_step_dsr_is_zero_and_moments_move(self):
        s, r = play(bars([100, 110]), self.P, [action(LONG)])
        # A = B = 0 before: numerator 0; R = 10/1000
        assert r["dsr"][0] == 0
        assert s["dsr_A"][1] == pytest.approx(0.01 * 0.01)
        assert s["dsr_B"][1] == pytest.approx(0.01 * 0.01**2)

    def test_second_step_dsr(self):
        _, r = play(bars([100, 110, 120]), self.P, [action(LONG), action(HOLD)])
        a, b, ret = 1e-4, 1e-6, 10 / 1010
        numerator = b * (ret - a) - 0.5 * a * (ret * ret - b)
        expected = numerator / max(abs(b - a * a), 1e-8) ** 1.5
        assert r["dsr"][1] == pytest.approx(expected, rel=1e-4)

    def test_z_uses_the_updated_moving_moments_and_gross(self):
        _, r = play(bars([100, 110]), params(formula=COMPOSITE, commission=3.0), [action(LONG)])
        ema = 0.01 * 10
        var = 0.01 * (10 - ema) ** 2
        assert r["pnl_z"][0] == pytest.approx((10 - ema) / np.sqrt(var + 1e-8), rel=1e-5)

    def test_losses_weigh_more(self):
        _, r = play(bars([100, 90]), self.P, [action(LONG)])
        assert r["asym"][0] == pytest.approx(1.5 * r["pnl_z"][0])
        assert r["pnl_z"][0] < 0

    def test_drawdown_beyond_the_threshold(self):
        _, r = play(bars([100, 50]), self.P, [action(LONG)])
        assert r["dd_penalty"][0] == pytest.approx(50 / 1000 - 0.02, rel=1e-5)

    def test_hold_rent_has_no_cap(self):
        _, r = play(bars([100] * 11), self.P, [action(LONG)] + [action(HOLD)] * 9)
        np.testing.assert_allclose(r["hold_rent"], 5e-4 * np.arange(1, 11), rtol=1e-5)

    def test_sum(self):
        p = params(formula=COMPOSITE, commission=0.5)
        _, r = play(bars([100, 101, 99], adx=40, cusum=0.3), p, [action(LONG), action(HOLD)])
        c = {name: r[name].astype(float) for name in COMPONENTS}
        expected = (
            1.0 * (2 - c["trend"]) * c["dsr"]
            + 0.3 * c["trend"] * c["asym"]
            - 1.0 * c["vol"] * c["dd_penalty"]
            - 0.01 * c["idle"]
            - c["hold_rent"]
            - c["tx_cost"]
            + c["r_aux"]
        )
        np.testing.assert_allclose(r["reward"], expected, rtol=1e-5)

    def test_a_strong_trend_switches_dsr_off(self):
        p = params(formula=COMPOSITE)
        _, r = play(bars([100, 110, 90], adx=60), p, [action(LONG), action(HOLD)])
        assert r["dsr"][1] != 0
        terms = weighted_terms(p, {name: r[name] for name in COMPONENTS})
        assert terms["dsr"][1] == 0


class TestCalibrated:
    def test_z_is_net_pnl_in_market_sigmas(self):
        _, r = play(bars([100, 102], sigma=1.6), params(commission=0.4), [action(LONG)])
        assert r["pnl_z"][0] == pytest.approx((2 - 0.4) / 1.6)

    def test_z_is_clipped(self):
        _, r = play(bars([100, 80]), params(), [action(LONG)])
        assert r["pnl_z"][0] == -5

    def test_a_tick_stands_in_for_zero_sigma(self):
        _, r = play(bars([100, 100.25], sigma=0.0), params(tick_size=0.25), [action(LONG)])
        assert r["pnl_z"][0] == 1

    def test_dsr_is_zero_for_fifty_steps_then_bounded(self):
        rng = np.random.default_rng(0)
        records = bars(100 + np.cumsum(rng.normal(0, 3, 121)))
        _, r = play(records, params(), [action(LONG)] * 120)
        assert (r["dsr"][:50] == 0).all()
        assert (r["dsr"][50:] != 0).all()
        assert np.abs(r["dsr"]).max() <= 1

    def test_dsr_is_proportional_to_size(self):
        rng = np.random.default_rng(1)
        records = bars(100 + np.cumsum(rng.normal(0, 1, 62)))
        p = params(initial_capital=10.0, ruin_level=-1e9)
        _, full = play(records, p, [action(LONG)] * 61)
        _, third = play(records, p, [action(LONG, THIRD)] * 61)
        exposed = third["dsr"][60] / full["dsr"][60]
        assert 0.2 < exposed < 0.5

    def test_a_loss_is_charged_once(self):
        # capital 100, threshold 2: equity 100, 97, 97, 96, 100, 97
        records = bars([100, 97, 97, 96, 100, 97])
        p = params(initial_capital=100.0)
        s, r = play(records, p, [action(LONG)] + [action(HOLD)] * 4)
        np.testing.assert_allclose(r["dd_penalty"], [1, 0, 1, 0, 1], atol=1e-5)
        np.testing.assert_allclose(s["dd_excess"], [0, 1, 1, 2, 0, 1], atol=1e-5)

    def test_loss_aversion_counts_trades_not_bars(self):
        records = bars([100, 99, 98, 98])
        _, r = play(records, params(), [action(LONG), action(HOLD), action(FLAT)])
        np.testing.assert_allclose(r["asym"], [-1, -1, -0.25 * 2], atol=1e-5)

    def test_a_winning_trade_is_not_charged(self):
        records = bars([100, 103, 102, 102])
        _, r = play(records, params(), [action(LONG), action(HOLD), action(FLAT)])
        np.testing.assert_allclose(r["asym"], [3, -1, 0], atol=1e-5)

    def test_rent_is_capped_and_proportional_to_size(self):
        _, r = play(bars([100] * 11), params(), [action(LONG)] + [action(HOLD)] * 9)
        np.testing.assert_allclose(
            r["hold_rent"][:5], [0.0005, 0.001, 0.0015, 0.002, 0.002], rtol=1e-5
        )
        _, r = play(bars([100] * 3), params(), [action(LONG, THIRD), action(HOLD)])
        np.testing.assert_allclose(r["hold_rent"], [0.0005 / 3, 0.001 / 3], rtol=1e-5)

    def test_cost_is_reported_but_charged_once(self):
        _, r = play(bars([100, 100]), params(commission=1.0), [action(LONG)])
        assert r["tx_cost"][0] == 1
        # 0.3 * trend 1 * z(-1) - rent - nothing more
        assert r["reward"][0] == pytest.approx(-0.3 - 0.0005)

    def test_dsr_balance_keeps_half_in_a_strong_trend(self):
        p = params()
        c = {name: np.ones(1, np.float32) for name in COMPONENTS} | {
            "trend": np.full(1, 2, np.float32)
        }
        assert weighted_terms(p, c)["dsr"][0] == 0.5

    def test_sum(self):
        rng = np.random.default_rng(5)
        records = bars(100 + np.cumsum(rng.normal(0, 1, 101)), adx=rng.uniform(0, 60, 101))
        _, r = play(records, params(commission=0.05), [action(d) for d in rng.integers(0, 4, 100)])
        c = {name: r[name].astype(float) for name in COMPONENTS}
        expected = (
            np.clip(2 - c["trend"], 0.5, 1.5) * c["dsr"]
            + 0.3 * c["trend"] * c["asym"]
            - c["vol"] * c["dd_penalty"]
            - 0.01 * c["idle"]
            - c["hold_rent"]
            + c["r_aux"]
        )
        np.testing.assert_allclose(r["reward"], expected, atol=2e-6)


class TestIdle:
    @pytest.mark.parametrize("formula", Formula)
    def test_grows_to_its_cap(self, formula):
        _, r = play(bars([100] * 61), params(formula=formula), [action(FLAT)] * 60)
        np.testing.assert_allclose(r["idle"][:3], [0.001, 0.002, 0.003], rtol=1e-5)
        assert r["idle"][59] == pytest.approx(0.05)


class TestTradeBonus:
    """The beta path: paid only when a trade closes at a profit in the forecast's direction."""

    RECORDS = bars([100, 103, 103])
    TRIP = (action(LONG), action(FLAT))

    def test_literal_uses_the_forecast_at_the_close_and_currency(self):
        p = params(formula=COMPOSITE)
        _, r = play(self.RECORDS, p, self.TRIP, aux=[-1, 0.5, 0])
        np.testing.assert_allclose(r["r_aux"], [0, 0.5 * 0.5 * 3])

    def test_calibrated_uses_the_forecast_at_entry_and_scales(self):
        _, r = play(bars([100, 103, 103], sigma=1.5), params(), self.TRIP, aux=[0.5, -1, 0])
        np.testing.assert_allclose(r["r_aux"], [0, 0.5 * 0.5 * 2])

    @pytest.mark.parametrize("formula", Formula)
    def test_never_negative(self, formula):
        p = params(formula=formula)
        against = play(self.RECORDS, p, self.TRIP, aux=[-1, -1, 0])[1]
        losing = play(bars([100, 97, 97]), p, self.TRIP, aux=[1, 1, 0])[1]
        assert (against["r_aux"] == 0).all()
        assert (losing["r_aux"] == 0).all()

    def test_a_short_aligns_with_a_negative_forecast(self):
        trip = (action(SHORT), action(FLAT))
        _, r = play(bars([100, 97, 97]), params(), trip, aux=[-1, 0, 0])
        assert r["r_aux"][1] == pytest.approx(0.5 * 3)

    @pytest.mark.parametrize(
        ("formula", "wanted"),
        [
            # long forecast .5 at entry earned 3; the short opened at -.8 earned 2
            (CALIBRATED, [0, 0.5 * 0.5 * 3, 0.5 * 0.8 * 2]),
            # at the closes: -.8 against the long, -.25 with the short
            (COMPOSITE, [0, 0, 0.5 * 0.25 * 2]),
        ],
    )
    def test_a_flip_closes_one_trade_and_opens_another(self, formula, wanted):
        records = bars([100, 103, 101, 101])
        trip = (action(LONG), action(SHORT), action(FLAT))
        s, r = play(records, params(formula=formula), trip, aux=[0.5, -0.8, -0.25, 0])
        np.testing.assert_allclose(r["r_aux"], wanted, rtol=1e-6)
        np.testing.assert_allclose(s["aux_at_entry"], [0, 0.5, -0.8, 0], rtol=1e-6)

    def test_an_increase_keeps_the_forecast_at_entry(self):
        trip = (action(LONG, THIRD), action(LONG), action(LONG, THIRD), action(FLAT))
        _, r = play(bars([100, 100, 102, 103, 103]), params(), trip, aux=[1, -1, -1, -1, 0])
        # two thirds earned 2, one third 3; all of it is one trade, paid at its end
        np.testing.assert_allclose(r["r_aux"], [0, 0, 0, 0.5 * (4 / 3 + 1)], rtol=1e-6)

    @pytest.mark.parametrize(("formula", "wanted"), [(CALIBRATED, 5), (COMPOSITE, 30)])
    def test_the_calibrated_profit_is_clipped(self, formula, wanted):
        _, r = play(bars([100, 130, 130]), params(formula=formula), self.TRIP, aux=[1, 1, 0])
        np.testing.assert_allclose(r["r_aux"], [0, 0.5 * wanted])

    @pytest.mark.parametrize(
        ("formula", "later", "wanted"),
        [(CALIBRATED, -1, 0.5 * 0.5), (COMPOSITE, -1, 0), (COMPOSITE, 0.8, 0.5 * 0.8)],
    )
    def test_a_ruin_closes_the_trade_too(self, formula, later, wanted):
        """Up 2, then down 1 to the ruin level: the trade ends with a gain of 1."""
        p = params(formula=formula, ruin_level=1001.0)
        s, r = play(bars([100, 102, 101]), p, (action(LONG), action(HOLD)), aux=[0.5, later, 0])
        assert r["end"].tolist() == [End.RUNNING, End.TERMINATED]
        np.testing.assert_allclose(r["r_aux"], [0, wanted], rtol=1e-6)
        assert s["aux_at_entry"][2] == 0

    @pytest.mark.parametrize(
        ("formula", "wanted"),
        [(CALIBRATED, 0.5 * 0.5 * 4 + 0.5 * 0.8 * 1), (COMPOSITE, 0.5 * 0.8 * 1)],
    )
    def test_a_flip_into_ruin_closes_both(self, formula, wanted):
        """Long from 100, flipped at 104 after a fall from 110, marked at 103 below the level."""
        p = params(formula=formula, fill=Fill.NEXT_OPEN, ruin_level=1006.0)
        records = bars([100, 110, 103], open=[100, 100, 104])
        _, r = play(records, p, (action(LONG), action(SHORT)), aux=[0.5, -0.8, 0])
        assert r["end"].tolist() == [End.RUNNING, End.TERMINATED]
        assert r["trade_result"][1] == 4
        np.testing.assert_allclose(r["r_aux"], [0, wanted], rtol=1e-6)

    @pytest.mark.parametrize("formula", Formula)
    def test_the_end_of_the_window_pays_nothing(self, formula):
        _, r = play(bars([100, 103]), params(formula=formula), (action(LONG),), aux=[1, 1])
        assert r["end"][0] == End.TRUNCATED
        assert r["r_aux"][0] == 0

    def test_it_is_part_of_the_reward(self):
        r0, r1 = (
            play(self.RECORDS, params(scale_beta=beta), self.TRIP, aux=[1, 0, 0])[1]
            for beta in (0.0, 0.5)
        )
        np.testing.assert_allclose(r1["reward"] - r0["reward"], [0, 0.5 * 3], atol=1e-6)

    def test_pays_this_trade_not_the_account(self):
        records = bars([100, 110, 110, 111, 111])
        _, r = play(records, params(), self.TRIP * 2, aux=[1] * 5)
        np.testing.assert_allclose(r["r_aux"], [0, 2.5, 0, 0.5])


def series(kind, n=400):
    rng = np.random.default_rng(7)
    if kind == "trend":
        return 100 + 0.5 * np.arange(n)
    if kind == "reverting":
        return 100 + np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    return 100 + np.cumsum(rng.normal(0, 1, n))


@pytest.mark.parametrize("formula", Formula)
class TestKnownSeries:
    """Sign and size of each component on linear-trend, mean-reverting and random-walk series."""

    def run(self, kind, formula, direction):
        p = params(formula=formula, tx_cost_multiplier=1e-5)
        close = series(kind)
        return play(bars(close), p, [action(direction)] * (len(close) - 1))[1]

    def test_trend_pays_the_right_side_only(self, formula):
        long, short = (self.run("trend", formula, d) for d in (LONG, SHORT))
        assert long["gross"].sum() == pytest.approx(199.5)
        assert short["gross"].sum() == pytest.approx(-199.5)
        assert long["dd_penalty"].max() == 0
        assert short["dd_penalty"].sum() > 0
        if formula == CALIBRATED:
            np.testing.assert_allclose(long["pnl_z"][1:], 0.5, rtol=1e-3)
            np.testing.assert_allclose(short["pnl_z"][1:], -0.5, rtol=1e-3)
            assert long["reward"].sum() > 0 > short["reward"].sum()
        else:
            # the literal z forgets the mean: a steady winner fades towards its own average
            assert 0 < long["pnl_z"][-1] < long["pnl_z"][0]

    def test_reverting_holder_earns_nothing(self, formula):
        r = self.run("reverting", formula, LONG)
        assert abs(r["gross"].sum()) <= 2
        assert abs(r["pnl_z"].mean()) < 0.02 if formula == CALIBRATED else True
        assert r["dd_penalty"].max() == 0  # swings of 2 stay inside the 2 % threshold

    def test_random_walk_is_symmetric_between_sides(self, formula):
        long, short = (self.run("random", formula, d) for d in (LONG, SHORT))
        np.testing.assert_allclose(long["gross"], -short["gross"], rtol=1e-5)
        if formula == CALIBRATED:
            np.testing.assert_allclose(long["pnl_z"][1:], -short["pnl_z"][1:], atol=1e-4)

    def test_flat_scores_only_idleness(self, formula):
        r = self.run("random", formula, FLAT)
        for name in ("pnl_z", "dd_penalty", "asym", "hold_rent", "tx_cost", "r_aux", "gross"):
            assert (r[name] == 0).all(), name
        np.testing.assert_allclose(r["reward"], -0.01 * r["idle"], rtol=1e-6)
