"""Rows of the store: intervals, figures over seeds, shares of the reward, trade times."""

import numpy as np
import pytest

from backtest import rng
from backtest.config import Evaluation, Instrument, Market
from backtest.evaluation.account import account
from backtest.evaluation.intervals import Interval, mean_interval, stratified_interval
from backtest.evaluation.rows import (
    chosen_rows,
    component_rows,
    equity_columns,
    metric_rows,
    over_seeds,
    record_intervals,
    side_by_side,
    stacked,
    trade_columns,
)
from backtest.market.layout import COMPONENTS, Direction, End, Fill, Formula
from backtest.market.rough import rough_actions, rough_params, rough_tape
from backtest.market.walk import walk_actions, walk_targets
from backtest.schema import conform
from tests.backtest.fold_rows import metric_row
from tests.tables import table_of, tape_of

KEY = rng.key(0, "SP500", "2011-01-01")
CHANCE = Evaluation(bootstrap=200, confidence=0.9)
LABEL = {"variant": "none", "policy_kind": "learned"}


def played(targets, fill="next_open"):
    """The account of target positions on a short market, and its table."""
    table = table_of([100, 102, 104, 101, 99], first_bar=50)
    rules, free = Market(initial_capital=1000.0, fill=fill), Instrument(tx_cost_multiplier=0.0)
    positions = np.array(targets, np.float32)[:, None]
    trace = walk_targets(tape_of(table, free, rules), np.array([50]), positions).result[:, 0]
    return account(trace, None, table, 50, free, rules), table


class TestColumns:
    def test_equity(self):
        found, _ = played([1, 1, 0, 0])
        columns = equity_columns(found, {"seed": 3, **LABEL})
        assert set(columns["seed"]) == {3}
        table = conform("equity", columns, {"fold_id": "f"})
        assert table["bar"].to_pylist() == [51, 52, 53, 54]
        assert table["fill_price"].to_pylist() == [100.0, None, 104.0, None]
        assert table["equity"].to_pylist() == found.equity.tolist()

    @pytest.mark.parametrize(("fill", "entry"), [("next_open", 51), ("close", 50)])
    def test_trade_times_are_those_of_their_bars(self, fill, entry):
        # a fill at the close of the bar before the window belongs to that bar
        found, table = played([1, 1, 0, -1], fill)
        columns = trade_columns(found, table, {"seed": 0, **LABEL})
        rows = conform("trade", columns, {"fold_id": "f"}).to_pylist()
        assert [row["trade"] for row in rows] == [0, 1]
        assert rows[0]["entry_bar"] == entry
        for row in rows:
            for end in ("entry", "exit"):
                assert row[f"{end}_time"].timestamp() * 1e9 == row[f"{end}_bar"] * 1e9

    def test_no_trades(self):
        found, table = played([0, 0])
        columns = trade_columns(found, table, {"seed": 0, **LABEL})
        more = trade_columns(*played([1, 0]), {"seed": 1, **LABEL})
        assert conform("trade", columns, {"fold_id": "f"}).num_rows == 0
        assert conform("trade", stacked([columns, more]), {"fold_id": "f"}).num_rows == 1


class TestMetricRows:
    def test_bounds_and_numbers_behind_them(self):
        intervals = {"sharpe": Interval(1.0, 0.5, 1.5, 20), "expectancy": Interval(2.0, 1, 3, 7)}
        values = {"sharpe": 1.0, "expectancy": 2.0, "skew": None, "n_trades": 7.0}
        rows = {r["name"]: r for r in metric_rows(values, {"seed": 0}, 20, intervals)}
        assert rows["expectancy"] == {
            "seed": 0, "name": "expectancy", "value": 2.0, "low": 1, "high": 3, "n": 7
        }  # fmt: skip
        assert (rows["sharpe"]["low"], rows["sharpe"]["n"]) == (0.5, 20)
        assert rows["skew"] | {"seed": 0} == {
            "seed": 0, "name": "skew", "value": None, "low": None, "high": None, "n": 20
        }  # fmt: skip
        assert rows["n_trades"]["n"] == 20

    def test_intervals_of_a_record(self):
        returns = np.random.default_rng(0).normal(0.001, 0.01, 100)
        trades = {
            "pnl": np.array([5.0, -2.0, 4.0, 1000.0]),
            "reason": np.array(["exit", "flip", "ruin", "open"]),
        }
        found = record_intervals(returns, trades, 252, KEY, CHANCE)
        assert found["sharpe"].low < found["sharpe"].value < found["sharpe"].high
        # the open trade is not closed: mean of 5, -2 and 4
        assert found["expectancy"] == mean_interval(np.array([5.0, -2, 4]), confidence=0.9)
        assert found["expectancy"].n == 3

    def test_chosen_is_each_seeds_own_pick(self):
        rows = [
            metric_row("sharpe", 1.0, seed=0),
            metric_row("sharpe", 2.0, seed=1),
            metric_row("sharpe", 3.0, seed=1, variant="step"),
            metric_row("sharpe", 1.5, seed=-2),
            metric_row("sharpe", 9.0, seed=0, variant="random", kind="baseline"),
        ]
        found = chosen_rows(rows, {0: "none", 1: "step"})
        assert found == [rows[0] | {"variant": "chosen"}, rows[2] | {"variant": "chosen"}]


class TestOverSeeds:
    def test_each_metric_is_its_own_stratified_interval(self):
        rng_ = np.random.default_rng(0)
        scores = rng_.normal(0, 1, (2, 8, 3))
        values = [
            [{"a": scores[0, run, fold], "b": scores[1, run, fold]} for run in range(8)]
            for fold in range(3)
        ]
        rows = over_seeds(values, LABEL, KEY, CHANCE)
        assert [row["name"] for row in rows] == ["a", "b"]
        for row, metric in zip(rows, scores, strict=True):
            expected = stratified_interval(metric, KEY, resamples=200, confidence=0.9)
            assert (row["value"], row["low"], row["high"], row["n"]) == (
                expected.value, expected.low, expected.high, 24
            )  # fmt: skip
            assert row["seed"] == -2

    def test_the_mean_of_the_middle_half(self):
        values = [[{"a": v} for v in (1.0, 2.0, 3.0, 100.0)]]
        (row,) = over_seeds(values, LABEL, KEY, CHANCE)
        assert row["value"] == 2.5

    def test_strata_may_hold_different_numbers_of_runs(self):
        values = [[{"a": 1.0}, {"a": 2.0}, {"a": None}], [{"a": 6.0}]]
        (row,) = over_seeds(values, LABEL, KEY, CHANCE)
        assert (row["value"], row["n"]) == (3.0, 3)
        np.testing.assert_array_equal(
            side_by_side([[1.0, None], [3.0]]), [[1, 3], [np.nan, np.nan]]
        )

    def test_a_metric_that_no_run_defines(self):
        (row,) = over_seeds([[{"a": None}, {"a": None}]], LABEL, KEY, CHANCE)
        assert (row["value"], row["low"], row["high"], row["n"]) == (None, None, None, 0)


class TestComponents:
    @pytest.mark.parametrize("formula", list(Formula))
    def test_shares_are_those_of_the_weighted_terms(self, formula):
        tape = rough_tape(rough_params(formula, Fill.NEXT_OPEN), 200)
        trace = walk_actions(tape, np.array([0]), rough_actions(150, 1, 3)).result[:, 0]
        rows = {r["name"]: r for r in component_rows(tape.params, trace, {"seed": 0})}
        assert tuple(rows) == (*COMPONENTS, "reward")
        live = trace[trace["end"] != End.DEAD]
        p = {name: float(tape.params[name]) for name in ("w_dsr", "w_pnl", "w_dd", "w_idle")}
        c = {name: live[name].astype(float) for name in COMPONENTS}
        balance = 2 - c["trend"]
        if formula == Formula.CALIBRATED:
            balance = np.clip(balance, 0.5, 1.5)
        terms = {
            "dsr": p["w_dsr"] * balance * c["dsr"],
            "asym": p["w_pnl"] * c["trend"] * c["asym"],
            "dd_penalty": p["w_dd"] * c["vol"] * c["dd_penalty"],
            "idle": p["w_idle"] * c["idle"],
            "hold_rent": c["hold_rent"],
            "r_aux": c["r_aux"],
        }
        if formula == Formula.COMPOSITE:
            terms["tx_cost"] = c["tx_cost"]
        size = {name: np.abs(term).mean() for name, term in terms.items()}
        shares = {name: row["share"] for name, row in rows.items() if row["share"] is not None}
        assert shares.keys() == terms.keys()
        assert sum(shares.values()) == pytest.approx(1)
        for name, share in shares.items():
            assert share == pytest.approx(size[name] / sum(size.values()), rel=1e-5, abs=1e-9)
        for name, row in rows.items():
            assert row["mean"] == pytest.approx(live[name].astype(float).mean(), rel=1e-12)
            assert row["std"] == pytest.approx(live[name].astype(float).std(ddof=1), rel=1e-12)

    def test_rows_after_ruin_do_not_count(self):
        tape = rough_tape(rough_params(Formula.CALIBRATED, Fill.NEXT_OPEN), 400)
        long = np.zeros((300, 64, 4), int)
        long[..., 0], long[..., 1], long[..., 3] = Direction.LONG, 2, 2
        traces = walk_actions(tape, np.arange(64), long).result
        ruined = np.flatnonzero((traces["end"] == End.DEAD).any(0))
        trace = traces[:, ruined[0]]
        live = trace[trace["end"] != End.DEAD]
        assert component_rows(tape.params, trace, {}) == component_rows(tape.params, live, {})

    def test_one_step_has_no_spread(self):
        tape = rough_tape(rough_params(Formula.CALIBRATED, Fill.NEXT_OPEN), 3)
        trace = walk_actions(tape, np.array([0]), rough_actions(1, 1)).result[:, 0]
        assert all(row["std"] is None for row in component_rows(tape.params, trace, {}))
