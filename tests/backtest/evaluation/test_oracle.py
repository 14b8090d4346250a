"""The dynamic-programming oracle on paths small enough to enumerate."""

import itertools

import numpy as np
import pytest

from backtest.evaluation.oracle import best_pnl
from backtest.market.layout import Fill
from backtest.market.walk import walk_targets
from tests.scenes import bars, params, tape


@pytest.mark.parametrize("fill", Fill)
def test_equals_the_best_of_all_paths_through_the_market(fill):
    rng = np.random.default_rng(2)
    close = 100 + np.cumsum(rng.normal(0, 1, 7))
    records = bars(close, open=close - rng.normal(0, 0.3, 7))
    p = params(fill=fill, tx_cost_multiplier=2e-3, half_spread=0.1, commission=0.05, mult=2.0)
    paths = np.array(list(itertools.product((-1.0, 0.0, 1.0), repeat=6)), np.float32).T
    walk = walk_targets(tape(records, p), np.zeros(paths.shape[1], int), paths)
    best = best_pnl(tape(records, p), 0, 6, np.array([-1.0, 0.0, 1.0]))
    assert best == pytest.approx(walk.result["equity"][-1].max() - 1000, abs=1e-3)


def test_costs_above_every_move_leave_nothing():
    p = params(commission=10.0)
    assert best_pnl(tape(bars([100, 101, 99, 102]), p), 0, 3, np.array([-1.0, 0.0, 1.0])) == 0
