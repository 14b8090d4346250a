"""reward.cl against backtest/market/reward.py, function by function, equal in every bit."""

import numpy as np
import pytest

from backtest.market import reward
from backtest.market.layout import COMPONENTS, STEP, Fill, Formula
from backtest.market.rough import rough_params
from opencl.market import MarketRules
from tests.opencl.wrapping import evaluate

N = 20_000
WRAPPERS = """
__kernel void test_clip(__global const float *x, __global float *out)
{
    const int i = get_global_id(0);
    out[i] = clip(x[i], -2.0f, 3.0f);
}

__kernel void test_reward_scale(const MarketParams p, __global const float *sigma,
                                __global float *out, __global int *which)
{
    const int i = get_global_id(0);
    out[i] = reward_scale(&p, sigma[i]);
    which[i] = CALIBRATED;
}

__kernel void test_differential_sharpe(const MarketParams p, __global const float *x,
                                       __global const int *t, const int n, __global float *out)
{
    const int i = get_global_id(0);
    out[i] = differential_sharpe(&p, x[i], x[n + i], x[2 * n + i], x[3 * n + i], x[4 * n + i],
                                 x[5 * n + i], t[i]);
}

__kernel void test_pnl_score(const MarketParams p, __global const float *x, const int n,
                             __global float *out)
{
    const int i = get_global_id(0);
    out[i] = pnl_score(&p, x[i], x[n + i], x[2 * n + i], x[3 * n + i], x[4 * n + i]);
}

__kernel void test_drawdown_penalty(const MarketParams p, __global const float *x,
                                    const int n, __global float *out)
{
    const int i = get_global_id(0);
    out[i] = drawdown_penalty(&p, x[i], x[n + i], x[2 * n + i], x[3 * n + i], x[4 * n + i]);
}

__kernel void test_trade(const MarketParams p, __global const int *closed,
                         __global const float *x, const int n, __global float *outcome,
                         __global float *loss, __global float *bonus)
{
    const int i = get_global_id(0); // x (4, n): aux, position, result, unit
    outcome[i] = trade_outcome(&p, x[2 * n + i], x[3 * n + i]);
    loss[i] = loss_penalty(&p, closed[i] != 0, outcome[i]);
    bonus[i] = trade_bonus(&p, closed[i] != 0, x[i], x[n + i], outcome[i]);
}

__kernel void test_regime(const MarketParams p, __global const float *adx,
                          __global const float *cusum, __global float *trend, __global float *vol)
{
    const int i = get_global_id(0);
    float v;
    trend[i] = regime(&p, adx[i], cusum[i], &v);
    vol[i] = v;
}

__kernel void test_weighted_sum(const MarketParams p, __global const StepResult *c,
                                __global float *out)
{
    const int i = get_global_id(0);
    const StepResult r = c[i];
    out[i] = weighted_sum(&p, &r);
}
"""


@pytest.fixture
def program(device_program, p):
    return device_program(["fill.cl", "reward.cl"], WRAPPERS, MarketRules.of(p).defines())


@pytest.fixture
def rng():
    return np.random.default_rng(12)


@pytest.fixture(params=Formula, ids=lambda formula: formula.name.lower())
def p(request):
    return rough_params(request.param, Fill.CLOSE)


def floats(n=N):
    return np.empty(n, np.float32)


def columns(*arrays):
    return np.stack([np.asarray(a, np.float32) for a in arrays])


def scales(rng):
    return rng.uniform(0.01, 8, N)


def units(rng):
    return 1 / scales(rng)


def test_clip(program, rng):
    x = rng.uniform(-5, 5, N).astype(np.float32)
    x[:4] = [-2, 3, -0.0, 2.9999998]
    (seen,) = evaluate(program, "test_clip", N, x, out=[floats()])
    np.testing.assert_array_equal(seen, reward.clip(x, -2.0, 3.0))


def test_reward_scale_and_calibrated(program, rng, p):
    sigma = np.where(rng.random(N) < 0.2, 0, rng.uniform(0, 3, N)).astype(np.float32)
    scale, which = evaluate(
        program, "test_reward_scale", N, p, sigma, out=[floats(), np.empty(N, np.int32)]
    )
    np.testing.assert_array_equal(scale, reward.reward_scale(p, sigma))
    assert (which == int(reward.calibrated(p))).all()
    assert scale.min() == 0.25 * 1.25 * 3  # a tick stands in for no sigma


def test_differential_sharpe(program, rng, p):
    """Includes moments that cancel: B - A*A is zero, tiny, or negative."""
    A = rng.normal(0, 10.0 ** rng.integers(-6, 0, N))
    B = A**2 * rng.choice([0.0, 0.5, 1.0, 1.0000001, 2.0, 100.0], N)
    R = rng.normal(0, 10.0 ** rng.integers(-6, 0, N))
    x = columns(
        A, B, R - A, R**2 - B, 0.1 * scales(rng) / rng.uniform(1, 1e5, N), rng.uniform(0, 1, N)
    )
    t = rng.integers(0, 100, N).astype(np.int32)
    t[:2] = reward.DSR_WARMUP - 1, reward.DSR_WARMUP
    (seen,) = evaluate(program, "test_differential_sharpe", N, p, x, t, np.int32(N), out=[floats()])
    np.testing.assert_array_equal(seen, reward.differential_sharpe(p, *x, t))


def test_pnl_score(program, rng, p):
    x = columns(
        rng.normal(0, 5, N), rng.exponential(0.1, N), rng.normal(0, 1, N),
        rng.exponential(1, N) * (rng.random(N) > 0.1), units(rng),
    )  # fmt: skip
    (seen,) = evaluate(program, "test_pnl_score", N, p, x, np.int32(N), out=[floats()])
    np.testing.assert_array_equal(seen, reward.pnl_score(p, *x))


def test_drawdown_penalty(program, rng, p):
    peak = np.where(rng.random(N) < 0.05, 0, rng.uniform(-1, 50, N))
    x = columns(
        peak, peak - rng.exponential(2, N) * (rng.random(N) > 0.2),
        rng.exponential(1, N) * (rng.random(N) > 0.3), rng.exponential(1, N), units(rng),
    )  # fmt: skip
    (seen,) = evaluate(program, "test_drawdown_penalty", N, p, x, np.int32(N), out=[floats()])
    np.testing.assert_array_equal(seen, reward.drawdown_penalty(p, *x))


def test_trade_outcome_loss_penalty_and_trade_bonus(program, rng, p):
    closed = rng.integers(0, 2, N).astype(np.int32)
    x = columns(
        rng.uniform(-1, 1, N), rng.integers(-1, 2, N),
        rng.normal(0, 4, N) * (rng.random(N) > 0.1), units(rng),
    )  # fmt: skip
    seen, loss, bonus = evaluate(
        program, "test_trade", N, p, closed, x, np.int32(N), out=[floats() for _ in range(3)]
    )
    aux, position, result, unit = x
    shut, outcome = closed != 0, reward.trade_outcome(p, result, unit)
    np.testing.assert_array_equal(seen, outcome)
    np.testing.assert_array_equal(loss, reward.loss_penalty(p, shut, outcome))
    np.testing.assert_array_equal(bonus, reward.trade_bonus(p, shut, aux, position, outcome))
    assert (loss > 0).any() and (bonus > 0).any()


def test_regime(program, rng, p):
    adx, cusum = (rng.uniform(0, top, N).astype(np.float32) for top in (100, 1.5))
    adx[:5], cusum[:3] = (0, 12.5, 25, 50, 100), (0, 0.15, 0.5)
    seen = evaluate(program, "test_regime", N, p, adx, cusum, out=[floats(), floats()])
    for mine, wanted in zip(seen, reward.regime(p, adx, cusum), strict=True):
        np.testing.assert_array_equal(mine, wanted)
        assert (mine.min(), mine.max()) == (0.5, 2)


def test_weighted_sum(program, rng, p):
    results = np.zeros(N, STEP.dtype)
    for name in COMPONENTS:
        results[name] = rng.normal(0, 2, N)
    results["trend"] = rng.uniform(0.5, 2, N)
    (seen,) = evaluate(program, "test_weighted_sum", N, p, results, out=[floats()])
    parts = {name: results[name] for name in COMPONENTS}
    np.testing.assert_array_equal(seen, reward.weighted_sum(p, parts))
