"""totals.cl against backtest/market/totals.py, equal in every bit."""

import numpy as np
import pytest

from backtest.market.layout import STEP, TOTALS, End, Fill, Formula
from backtest.market.rough import rough_params
from backtest.market.totals import COMPENSATED, add, count_step
from opencl.market import MarketRules
from opencl.simulate import SIMULATE_FILES, TARGET_TYPES
from tests.opencl.wrapping import assert_same_records, evaluate

N = 5000
WRAPPERS = """
__kernel void test_add(__global const float *x, const int n, __global float *out)
{
    const int i = get_global_id(0); // x (3, n): sum, x, lost; out (2, n): sum, lost
    float lost = x[2 * n + i];
    out[i] = add(x[i], x[n + i], &lost);
    out[n + i] = lost;
}

__kernel void test_count_step(__global const StrategyTotals *totals, __global const float *lost,
                              __global const StepResult *result, __global const float *equity0,
                              __global const float *peak, const int n,
                              __global StrategyTotals *out, __global float *after) // lost (4, n)
{
    const int i = get_global_id(0);
    Tally tally;
    tally.totals = totals[i];
    for (int k = 0; k < 4; k++) {
        tally.lost[k] = lost[k * n + i];
    }
    const StepResult r = result[i];
    count_step(&tally, &r, equity0[i], peak[i]);
    out[i] = tally.totals;
    for (int k = 0; k < 4; k++) {
        after[k * n + i] = tally.lost[k];
    }
}

__kernel void test_target_at(__global const Target *targets, __global float *out)
{
    const int i = get_global_id(0);
    out[i] = target_at(targets, i);
}
"""


@pytest.fixture
def program(device_program):
    rules = MarketRules.of(rough_params(Formula.CALIBRATED, Fill.CLOSE)).defines()
    return lambda bits=32: device_program(SIMULATE_FILES, WRAPPERS, rules | {"TARGET_BITS": bits})


def test_add(program):
    rng = np.random.default_rng(1)
    x = (rng.normal(0, 1, (3, N)) * [[1e4], [1], [1e-3]]).astype(np.float32)
    (seen,) = evaluate(program(), "test_add", N, x, np.int32(N), out=[np.empty_like(x[:2])])
    np.testing.assert_array_equal(seen, np.stack(add(*x)))


def test_count_step(program):
    rng = np.random.default_rng(2)
    totals, r = np.zeros(N, TOTALS.dtype), np.zeros(N, STEP.dtype)
    for record, names in ((totals, TOTALS.dtype.names[:6]), (r, ("equity", "tx_cost", "filled"))):
        for name in names:
            record[name] = rng.normal(0, 100, N)
    r["position"] = r["trade_result"] = rng.integers(-1, 2, N)
    r["segment_complete"], r["end"] = rng.integers(0, 2, N), rng.choice(list(End), N)
    lost = {name: rng.normal(0, 1e-3, N).astype(np.float32) for name in COMPENSATED}
    equity0, peak = rng.normal(0, 100, (2, N)).astype(np.float32)
    out, after = evaluate(
        program(), "test_count_step", N, totals, np.stack(list(lost.values())), r, equity0, peak,
        np.int32(N), out=[totals.copy(), np.empty((4, N), np.float32)],
    )  # fmt: skip
    counted, rest = count_step(totals, lost, r, equity0, peak)
    assert_same_records(counted, out)
    np.testing.assert_array_equal(after, np.stack([rest[name] for name in COMPENSATED]))


@pytest.mark.parametrize("kind", TARGET_TYPES)
def test_target_at(program, kind):
    given = np.array([-128, -1, 0, 3, 127]).astype(kind)
    if kind != np.int8:
        given = given + kind(0.25)
    out = [np.empty(5, np.float32)]
    (seen,) = evaluate(program(8 * given.itemsize), "test_target_at", 5, given, out=out)
    np.testing.assert_array_equal(seen, given.astype(np.float32))
