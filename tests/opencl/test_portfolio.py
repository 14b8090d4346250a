"""portfolio.cl against backtest/market/portfolio.py; log1p may differ by an ulp, the rest not."""

import numpy as np
import pytest

from backtest.market.layout import N_PORTFOLIO, Fill, Formula
from backtest.market.portfolio import portfolio_state
from backtest.market.reward import DSR_WARMUP
from backtest.market.rough import rough_bars, rough_params
from backtest.market.step import reset
from opencl.market import MARKET_FILES, MarketRules
from tests.opencl.test_market import random_states
from tests.opencl.wrapping import evaluate

WRAPPER = """
__kernel void test_portfolio_state(const MarketParams p, __global const EpisodeState *s,
                                   __global const Bar *bar, __global const int *t,
                                   __global float *out)
{
    const int i = get_global_id(0);
    const EpisodeState mine = s[i];
    float slots[N_PORTFOLIO];
    portfolio_state(&p, &mine, bar[i], t[i], slots);
    for (int k = 0; k < N_PORTFOLIO; k++) {
        out[i * N_PORTFOLIO + k] = slots[k];
    }
}
"""
COUNTERS = (2, 3)  # log1p of hold_time and flat_counter


def run(device_program, p, s, bar, t):
    program = device_program((*MARKET_FILES, "portfolio.cl"), WRAPPER, MarketRules.of(p).defines())
    out = np.empty((len(s), N_PORTFOLIO), np.float32)
    return evaluate(program, "test_portfolio_state", len(s), p, s, bar, t, out=[out])[0]


@pytest.mark.parametrize("formula", Formula)
def test_portfolio_state_equals_numpy(device_program, formula):
    n, rng = 20_000, np.random.default_rng(31)
    p = rough_params(formula, Fill.CLOSE)
    s = random_states(rng, n, p)
    s["hold_time"][:3] = 0, 1000, 1e6
    bar, _ = rough_bars(n, seed=3)
    t = rng.integers(0, 2 * DSR_WARMUP, n).astype(np.int32)
    seen, wanted = run(device_program, p, s, bar, t), portfolio_state(p, s, bar, t)
    exact = [k for k in range(N_PORTFOLIO) if k not in COUNTERS]
    np.testing.assert_array_equal(seen[:, exact], wanted[:, exact])
    np.testing.assert_allclose(seen[:, COUNTERS], wanted[:, COUNTERS], rtol=3e-7)
    assert seen.min() == -10 and seen.max() == 10  # both clips are reached


@pytest.mark.parametrize("formula", Formula)
def test_a_fresh_account_is_all_zero(device_program, formula):
    p = rough_params(formula, Fill.CLOSE)
    bar, _ = rough_bars(1)
    seen = run(device_program, p, reset(p, 1), bar, np.zeros(1, np.int32))
    np.testing.assert_array_equal(seen, 0)
