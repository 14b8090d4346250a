"""Episodes of the user's windows, the notional, and how often the regime sits at its limits."""

import numpy as np
import pytest

from backtest import rng
from backtest.audit.windows import (
    at_notional,
    capped,
    notional_ratio,
    random_starts,
    regime_shares,
    union,
)
from backtest.errors import ConfigError, DataError
from backtest.market.walk import check_span
from backtest.splits import Window
from tests.scenes import bars, params, tape

KEY = rng.key(0, "TEST", "audit")


class TestHorizons:
    def test_a_window_of_k_bars_holds_k_minus_1_steps(self):
        assert capped((100, 1000), [Window(0, 50), Window(0, 301)]) == (100, 300)
        assert capped((1000, 100), [Window(0, 2000)]) == (100, 1000)

    def test_horizons_cut_alike_are_one(self):
        assert capped((100, 1000), [Window(10, 41)]) == (30,)

    @pytest.mark.parametrize("windows", [[], [Window(5, 6)], [Window(5, 5)]])
    def test_nothing_to_audit(self, windows):
        with pytest.raises(DataError, match="no train window holds 2 bars"):
            capped((100,), windows)


class TestStarts:
    def test_first_and_last_start(self):
        # window [10, 20): train decides from 10 to 18, so 5 steps begin at 10..14
        starts = random_starts([Window(10, 20)], 5, 500, KEY)
        assert set(starts.tolist()) == {10, 11, 12, 13, 14}

    def test_an_episode_stays_in_one_window(self):
        windows = [Window(10, 20), Window(30, 38), Window(50, 53)]
        starts = random_starts(windows, 5, 500, KEY)
        assert set(starts.tolist()) == {10, 11, 12, 13, 14, 30, 31, 32}

    def test_overlap_makes_no_bar_likelier(self):
        windows = [Window(0, 101), Window(50, 101), Window(50, 101)]
        starts = random_starts(windows, 1, 20_000, KEY)
        assert (starts < 50).mean() == pytest.approx(0.5, abs=0.015)

    def test_the_whole_window(self):
        assert random_starts([Window(7, 18)], 10, 3, KEY).tolist() == [7, 7, 7]

    def test_never_past_the_tape(self):
        starts = random_starts([Window(700, 900)], 100, 5000, KEY)
        check_span(tape(bars(np.zeros(200)), params(), start=700), starts, 100)


def test_union():
    assert union([Window(8, 10), Window(3, 5), Window(4, 6)]).tolist() == [3, 4, 5, 8, 9]


class TestNotional:
    # 3 units x 10 a point x a median price of 1,000 over a capital of 1,000
    TAPE = tape(bars([-10, 0, 10]), params(base=1000.0, mult=10.0, max_position=3.0), start=5)
    WINDOWS = (Window(5, 8),)

    def test_ratio(self):
        assert notional_ratio(self.TAPE, np.array([5, 6, 7])) == pytest.approx(30)

    def test_negative_prices_have_a_notional(self):
        t = tape(bars([-10, 0, 10]), params(base=-1000.0), start=5)
        assert notional_ratio(t, np.array([5, 6, 7])) == pytest.approx(1)

    @pytest.mark.parametrize("ratio", [0.1, 1.0, 50.0])
    def test_scaled(self, ratio):
        scaled = at_notional(self.TAPE, self.WINDOWS, ratio)
        assert scaled.params["max_position"] == pytest.approx(ratio / 10)
        assert notional_ratio(scaled, np.array([5, 6, 7])) == pytest.approx(ratio)
        assert self.TAPE.params["max_position"] == 3  # untouched

    def test_below_a_lot(self):
        t = tape(bars([0, 0]), params(base=1000.0, lot_size=1.0))
        with pytest.raises(ConfigError, match=r"a third of max_position = 2 is below lot_size = 1"):
            at_notional(t, (Window(0, 2),), 2.0)
        assert at_notional(t, (Window(0, 2),), 3.0).params["max_position"] == 3

    def test_below_what_float32_sees(self):
        t = tape(bars([0, 0]), params(base=1000.0, tick_size=1e-4))
        with pytest.raises(ConfigError, match="float32 equity of 1000 cannot see"):
            at_notional(t, (Window(0, 2),), 0.1)


def test_regime_shares_by_hand():
    # cusum over 0.5 (literal) and over 0.15 (calibrated), adx over 25; limits 0.5 and 2
    records = bars(np.zeros(4), adx=[10, 12.5, 30, 60], cusum=[0.05, 0.2, 0.4, 1.0])
    rows = regime_shares(tape(records, params(), start=3), np.array([3, 4, 5, 6]))
    found = {(r["formula"], r["factor"]): (r["floor"], r["ceiling"]) for r in rows}
    assert found == {
        ("composite", "trend"): (0.5, 0.25),
        ("composite", "vol"): (0.5, 0.25),
        ("calibrated", "trend"): (0.5, 0.25),
        ("calibrated", "vol"): (0.25, 0.5),
    }
