"""Totals of a strategy, against plain float64 sums over its results."""

import numpy as np
import pytest

from backtest.market.layout import TOTALS, End, Fill, Formula
from backtest.market.rough import rough_params, rough_tape
from backtest.market.totals import add, sharpe_ratio, walk_totals
from backtest.market.walk import walk_targets

STEPS, N = 120, 40


@pytest.fixture(scope="module")
def made():
    tape = rough_tape(rough_params(Formula.CALIBRATED, Fill.NEXT_OPEN), 400, seed=4)
    start = np.random.default_rng(4).integers(0, 400 - STEPS, N)
    targets = np.random.default_rng(5).integers(-3, 4, (STEPS, N)).astype(np.float32)
    return tape, walk_targets(tape, start, targets)


def test_totals_are_what_the_results_add_up_to(made):
    tape, walk = made
    totals, r = walk_totals(tape, walk), walk.result
    living = r["end"] != End.DEAD
    assert 0 < living.mean() < 1  # some are ruined
    capital = float(tape.params["initial_capital"])
    equity = walk.state["portfolio_val"].astype(np.float64)
    pnl = np.diff(equity, axis=0)
    drawdown = (np.maximum.accumulate(equity) - equity).max(0)
    wanted = {
        "net_pnl": equity[-1] - capital,
        "max_drawdown": drawdown,
        "costs": r["tx_cost"].sum(0, np.float64),
        "turnover": np.abs(r["filled"]).sum(0, np.float64),
        "square_pnl": (pnl**2).sum(0),
        "square_loss": (np.minimum(pnl, 0) ** 2).sum(0),
        "bars": living.sum(0),
        "exposed": (living & (r["position"] != 0)).sum(0),
        "trades": r["segment_complete"].sum(0),
        "wins": (r["trade_result"] > 0).sum(0),
        "end": np.where(living.all(0), End.TRUNCATED, End.TERMINATED),
    }
    assert set(wanted) == set(TOTALS.dtype.names)
    for name, value in wanted.items():
        np.testing.assert_allclose(totals[name], value, rtol=3e-6, atol=1e-5, err_msg=name)


def test_a_compensated_sum_keeps_what_a_plain_one_loses():
    total, lost, plain = np.float32(1e6), np.float32(0), np.float32(1e6)
    for _ in range(10_000):
        total, lost = add(total, np.float32(0.01), lost)
        plain += np.float32(0.01)
    assert total == pytest.approx(1e6 + 100, abs=0.1)
    assert plain == 1e6


def test_sharpe_ratio():
    totals = np.zeros(2, TOTALS.dtype)
    pnl = np.array([1.0, -1.0, 3.0, 1.0])
    totals["bars"] = 4
    totals["net_pnl"][0], totals["square_pnl"][0] = pnl.sum(), (pnl**2).sum()
    seen = sharpe_ratio(totals, bars_per_year=252)
    assert seen[0] == pytest.approx(pnl.mean() / pnl.std(ddof=1) * np.sqrt(252))
    assert np.isnan(seen[1])  # never moved
