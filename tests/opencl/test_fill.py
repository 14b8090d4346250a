"""fill.cl against backtest/market/fill.py, function by function, equal in every bit."""

import numpy as np
import pytest

from backtest.market.fill import at_close, order_fill, position_change, target_position
from backtest.market.layout import BAR, Fill, Formula, Order
from backtest.market.rough import rough_bars, rough_params
from opencl.market import MarketRules
from tests.opencl.wrapping import evaluate
from tests.scenes import bars, params

N = 20_000
WRAPPERS = """
__kernel void test_one_of(const MarketParams p, __global const int *index,
                          __global float *out)
{
    const int i = get_global_id(0);
    out[3 * i] = one_of(p.magnitude, index[i]);
    out[3 * i + 1] = one_of(p.urgency, index[i]);
    out[3 * i + 2] = one_of(p.offset, index[i]);
}

__kernel void test_target_position(const MarketParams p, __global const float *position,
                                   __global const int4 *action, __global float *out)
{
    const int i = get_global_id(0);
    out[i] = target_position(&p, position[i], action[i]);
}

__kernel void test_position_change(const MarketParams p, __global const float *position,
                                   __global const float *target, __global const float *urgency,
                                   __global float *out)
{
    const int i = get_global_id(0);
    out[i] = position_change(&p, position[i], target[i], urgency[i]);
}

__kernel void test_at_close(__global const int *order, __global int *out)
{
    const int i = get_global_id(0);
    out[i] = at_close(order[i]);
}

__kernel void test_order_fill(const MarketParams p, __global const Bar *bar,
                              __global const Bar *nxt, __global const float *c0,
                              __global const float *delta, __global const int *order,
                              __global float *filled, __global float *price)
{
    const int i = get_global_id(0);
    float paid;
    filled[i] = order_fill(&p, bar[i], nxt[i], c0[i], delta[i], order[i], &paid);
    price[i] = paid;
}
"""


@pytest.fixture
def program(device_program):
    """The program of a market's parameters."""
    return lambda p: device_program(["fill.cl"], WRAPPERS, MarketRules.of(p).defines())


@pytest.fixture
def rng():
    return np.random.default_rng(11)


def floats(n=N):
    return np.empty(n, np.float32)


def positions(rng, n=N):
    """Units as episodes hold them: none, thirds, whole lots, and remainders near the dust."""
    kinds = [
        np.zeros(n),
        rng.integers(-3, 4, n),
        rng.uniform(-3, 3, n),
        rng.uniform(-4e-3, 4e-3, n),
    ]
    return np.choose(rng.integers(0, 4, n), kinds).astype(np.float32)


def test_one_of_is_the_element(program):
    p = params(magnitude=(0.1, 0.2, 0.3), urgency=(0.4, 0.5, 0.6), offset=(0.7, 0.8, 0.9))
    index = np.arange(3, dtype=np.int32)
    (seen,) = evaluate(program(p), "test_one_of", 3, p, index, out=[np.empty((3, 3), np.float32)])
    np.testing.assert_array_equal(seen, np.stack([p["magnitude"], p["urgency"], p["offset"]], 1))


def test_target_position(program, rng):
    p = rough_params(Formula.CALIBRATED, Fill.CLOSE)
    action = np.stack([rng.integers(0, k, N) for k in (4, 3, 3, 3)], 1).astype(np.int32)
    position = positions(rng)
    (seen,) = evaluate(program(p), "test_target_position", N, p, position, action, out=[floats()])
    np.testing.assert_array_equal(seen, target_position(p, position, action))
    assert set(np.sign(seen)) == {-1, 0, 1}


@pytest.mark.parametrize("lot_size", [0.0, 0.1, 1.0])
def test_position_change(program, rng, lot_size):
    p = rough_params(Formula.CALIBRATED, Fill.CLOSE, lot_size)
    position, target = positions(rng), positions(rng)
    target[: N // 2] = rng.choice(np.array([-3, -2, -1, 0, 1, 2, 3], np.float32), N // 2)
    urgency = rng.choice(p["urgency"], N)
    (seen,) = evaluate(
        program(p), "test_position_change", N, p, position, target, urgency, out=[floats()]
    )
    np.testing.assert_array_equal(seen, position_change(p, position, target, urgency))
    assert (seen == -position).sum() > N // 10  # the dust rule closes some


@pytest.mark.parametrize("fill", Fill)
def test_at_close(program, fill):
    p = params(fill=fill)
    order = np.array(list(Order), np.int32)
    (seen,) = evaluate(program(p), "test_at_close", 3, order, out=[np.empty(3, np.int32)])
    np.testing.assert_array_equal(seen, at_close(p, order))
    assert seen.tolist() == [int(fill == Fill.CLOSE), 0, 0]


@pytest.mark.parametrize("fill", Fill)
def test_order_fill(program, rng, fill):
    p = rough_params(Formula.CALIBRATED, fill)
    table, _ = rough_bars(N + 1, seed=2)
    order = rng.integers(0, 3, N).astype(np.int32)
    delta = rng.choice(np.array([-2, -1 / 3, -0.0, 0, 1 / 3, 2], np.float32), N)
    given = table[:-1], table[1:], table["close"][:-1], delta, order
    filled, price = evaluate(program(p), "test_order_fill", N, p, *given, out=[floats(), floats()])
    wanted = order_fill(p, *given)
    np.testing.assert_array_equal(filled, wanted[0])
    np.testing.assert_array_equal(price, wanted[1])
    for kind in Order:  # every kind of order both fills and does not
        assert 0 < (filled[order == kind] != 0).mean() < 0.9


def test_order_fill_at_a_touched_limit(program):
    """A limit that is only touched does not fill; one tick further it does."""
    p = params(fill=Fill.NEXT_OPEN, offset=(0, 0.5, 1.0))
    # limits: buy 99.5 and sell 100.5 at close 100, sigma 1
    nxt = bars([100] * 4, open=[100] * 4, low=[99.5, 99.4, 99, 99], high=[101, 101, 100.5, 100.6])
    bar = np.broadcast_to(bars([100.0]), 4).astype(BAR.dtype)
    delta = np.array([1, 1, -1, -1], np.float32)
    order = np.full(4, Order.LIMIT, np.int32)
    filled, price = evaluate(
        program(p), "test_order_fill", 4, p, bar, nxt, bar["close"], delta, order,
        out=[floats(4), floats(4)],
    )  # fmt: skip
    assert filled.tolist() == [0, 1, 0, -1]
    assert price.tolist() == [100, 99.5, 100, 100.5]
