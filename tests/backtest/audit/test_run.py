"""The audits themselves: figures on record for both formulas, and the S&P 500's train windows.

The market is the kernel's where it has to be fast; one test shows that NumPy gives the same rows.
"""

import numpy as np
import pytest

from backtest.audit.policies import POLICIES
from backtest.audit.run import audit_bars, audit_synthetic
from backtest.audit.windows import at_notional
from backtest.calendar_folds import calendar_folds
from backtest.config import Folds, Instrument, parse
from backtest.data.bars import Bars
from backtest.errors import ConfigError
from backtest.features.table import compute
from backtest.market.records import bar_records
from backtest.market.tape import Tape, market_params
from backtest.schema import conform
from opencl.devices import select
from opencl.simulate import simulator
from tests.backtest.audit.made import walk

# Mean reward per step at T = 1,000 of a float64 simulation of the rules, and of the literal ones.
CALIBRATED = {
    "foresight": 0.355,
    "foresight_shrunk": 0.320,
    "foresight_third": 0.118,
    "accurate_60": 0.067,
    "accurate_55": 0.010,
    "flat": -0.0005,
    "random": -0.047,
    "inverse": -0.462,
}
COMPOSITE = {"foresight": -0.30, "accurate_55": -0.36, "flat": -0.0005}


def kernel(tape, start, targets):
    return simulator(select()).targets(tape, start, targets)[1]


def config(*overrides, episodes=128, horizons="[100, 1000]"):
    size = (f"audit.synthetic_episodes={episodes}", f"audit.horizons={horizons}")
    return parse({"reward": {}}, [*size, *overrides])


def means(audit, horizon):
    return {r["policy"]: r["mean_reward"] for r in audit.rows if r["horizon"] == horizon}


class TestSynthetic:
    def test_calibrated_holds_with_the_figures_on_record(self):
        audit = audit_synthetic(config(horizons="[1000]"), kernel)
        assert audit.order_ok, audit.failures
        found = means(audit, 1000)
        for policy, expected in CALIBRATED.items():
            assert found[policy] == pytest.approx(expected, abs=0.005), policy
        assert audit.summary.startswith("audit calibrated synthetic T=1,000: order holds")
        assert audit.notional == pytest.approx(0.05, rel=0.01)
        assert audit.ruined == {}

    def test_calibrated_holds_in_short_episodes(self):
        # half of 100 steps have no DSR: 55 % needs more episodes to stand clear of flat
        audit = audit_synthetic(config(episodes=2048, horizons="[100]"), kernel)
        assert audit.order_ok, audit.failures

    def test_literal_ranks_flat_above_foresight(self):
        audit = audit_synthetic(config("reward.formula=composite", horizons="[1000]"), kernel)
        found = means(audit, 1000)
        for policy, expected in COMPOSITE.items():
            assert found[policy] == pytest.approx(expected, abs=0.005), policy
        assert found["flat"] > found["foresight"] + 0.29
        assert not audit.order_ok
        broken = {(g.better, g.worse): g for g in audit.failures}
        assert broken.keys() == {
            ("foresight", "foresight_shrunk"),
            ("accurate_55", "flat"),
            ("foresight", "foresight_third"),
        }
        # the hold rent grows with the square of the episode, and survives every flip
        assert broken["accurate_55", "flat"].term == "hold_rent"
        assert audit.failures[0] is broken["accurate_55", "flat"]
        assert "order FAILS in 3 of 6 gaps, worst T=1000: 55 % over flat" in audit.summary

    def test_loss_aversion_of_the_literal_design_sinks_55_percent(self):
        audit = audit_synthetic(
            config("reward.loss_aversion=1.5", episodes=256, horizons="[1000]"), kernel
        )
        assert means(audit, 1000)["accurate_55"] == pytest.approx(-0.008, abs=0.003)
        assert [(g.better, g.worse, g.term) for g in audit.failures] == [
            ("accurate_55", "flat", "asym")
        ]

    def test_numpy_and_kernel_give_the_same_rows(self):
        small = config(episodes=6, horizons="[60]")
        assert audit_synthetic(small, walk).rows == audit_synthetic(small, kernel).rows

    def test_rows_fit_the_table(self):
        audit = audit_synthetic(config(episodes=4, horizons="[20, 30]"), walk, "ES")
        table = conform("reward_audit", audit.rows, {"study_id": "s"})
        assert table.num_rows == 2 * len(POLICIES)
        assert set(table["instrument"].to_pylist()) == {"ES"}
        assert set(table["source"].to_pylist()) == {"synthetic"}

    def test_no_horizon(self):
        with pytest.raises(ConfigError, match=r"\[audit.horizons\].* at least 1 item"):
            config(horizons="[]")

    @pytest.mark.slow
    @pytest.mark.parametrize("formula", ["calibrated", "composite"])
    def test_full_size(self, formula):
        audit = audit_synthetic(parse({"reward": {}}, [f"reward.formula={formula}"]), kernel)
        assert audit.order_ok == (formula == "calibrated")
        expected = CALIBRATED if formula == "calibrated" else COMPOSITE
        found = means(audit, 1000)
        for policy, value in expected.items():
            # the record has three decimals; a standard error is 0.0003
            assert found[policy] == pytest.approx(value, abs=0.002), policy


@pytest.fixture(scope="module")
def sp500():
    """Features of all bars, and the train windows of the default folds."""
    from arch.data import sp500 as source

    frame = source.load()
    n = len(frame)
    session = frame.index.to_numpy().astype("datetime64[D]").astype(np.int64)
    time = (session * 24 + 21) * 3600 * 10**9
    prices = [frame[c].to_numpy(float) for c in ("Open", "High", "Low", "Close", "Volume")]
    bars = Bars("SP500", time, *prices, np.zeros(n, bool), session.astype(np.int32))
    folds = calendar_folds(Folds(end="2019-01-01"), bars.time, bars.session, always_open=False)
    return compute(bars), [fold.train for fold in folds]


def tape_of(sp500, *overrides):
    table, windows = sp500
    base = table.close[windows[0].start]
    params = market_params(config(*overrides), Instrument(), base)
    records = bar_records(table, base, volume_known=True)
    return Tape(0, records, params, np.zeros(len(table), np.float32)), windows


class TestBars:
    SIZE = config("audit.user_episodes=64").audit

    def test_sp500_at_a_tenth_of_its_capital(self, sp500):
        tape, windows = tape_of(sp500)
        audit = audit_bars(at_notional(tape, windows, 0.1), windows, kernel, "SP500", self.SIZE)
        assert audit.order_ok, audit.failures
        assert audit.notional == pytest.approx(0.1)
        assert {r["horizon"] for r in audit.rows} == {100, 1000}
        assert {r["source"] for r in audit.rows} == {"bars"}

    def test_a_reward_that_shuns_drawdowns_is_reported(self, sp500):
        tape, windows = tape_of(sp500)
        audit = audit_bars(at_notional(tape, windows, 3.0), windows, kernel, "SP500", self.SIZE)
        assert audit.order_ok, audit.failures
        turned = {(g.better, g.worse): g for g in audit.warnings if g.horizon == 1000}
        assert turned["accurate_55", "flat"].term == "dd_penalty"
        assert "turned by dd_penalty" in turned["accurate_55", "flat"].text
        assert audit.ruined[1000, "inverse"] == 1
        assert "warnings" in audit.summary

    def test_the_literal_formula_fails(self, sp500):
        tape, windows = tape_of(sp500, "reward.formula=composite")
        audit = audit_bars(tape, windows, kernel, "SP500", self.SIZE)
        assert not audit.order_ok
        found = means(audit, 1000)
        assert found["flat"] > found["foresight"]

    def test_horizons_are_cut_to_the_window(self, sp500):
        tape, windows = tape_of(sp500)
        size = config("audit.user_episodes=4").audit
        short = [type(w)(w.start, w.start + 41) for w in windows]
        audit = audit_bars(tape, short, walk, "SP500", size)
        assert {r["horizon"] for r in audit.rows} == {40}
        assert len(audit.rows) == len(POLICIES)

    def test_nothing_outside_the_windows_is_read(self, sp500):
        tape, windows = tape_of(sp500)
        size = config("audit.user_episodes=8", horizons="[50]").audit
        before = audit_bars(tape, windows[:1], walk, "SP500", size)
        bars = tape.bars.copy()
        bars[windows[0].stop :] = np.zeros((), bars.dtype)
        bars[: windows[0].start] = np.zeros((), bars.dtype)
        cut = Tape(0, bars, tape.params, tape.aux)
        assert audit_bars(cut, windows[:1], walk, "SP500", size) == before

    def test_both_limits_of_both_formulas_are_hit(self, sp500):
        tape, windows = tape_of(sp500)
        size = config("audit.user_episodes=1", horizons="[2]").audit
        shares = audit_bars(tape, windows, walk, "SP500", size).regime
        assert len(shares) == 4
        for row in shares:
            assert 0 < row["floor"] < 1, row
            assert 0 < row["ceiling"] < 1, row
        floor = {(r["formula"], r["factor"]): r["floor"] for r in shares}
        assert floor["composite", "vol"] == pytest.approx(0.69, abs=0.01)
        assert floor["calibrated", "vol"] < 0.4
        assert floor["calibrated", "trend"] == floor["composite", "trend"]
