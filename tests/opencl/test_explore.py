"""explore.cl against backtest/agent/explore.py and argmax: ties, epsilon, which branches learn."""

import numpy as np
import pytest

from backtest import rng
from backtest.agent.actions import SPANS, learned
from backtest.agent.explore import choose
from backtest.market.layout import BRANCHES, N_ACTIONS, Direction, Order
from opencl.rollout import Shape
from tests.opencl.wrapping import evaluate

N = 20_000
WRAPPERS = """
__kernel void test_choose(__global const float *q, const float epsilon,
                          __global const uint2 *key, const uint stage_round,
                          __global const uint *place, const int n, __global int4 *out)
{
    const int i = get_global_id(0); // place (2, n): episode, t
    float mine[N_HEADS];
    for (int k = 0; k < N_HEADS; k++) {
        mine[k] = q[i * N_HEADS + k];
    }
    out[i] = choose(mine, drawn_action(epsilon, *key, stage_round, place[i], place[n + i]));
}

__kernel void test_arg_max(__global const float *q, __global int *out)
{
    const int i = get_global_id(0);
    float mine[4];
    for (int k = 0; k < 4; k++) {
        mine[k] = q[4 * i + k];
    }
    out[i] = arg_max(mine, 4);
}

__kernel void test_drawn_value(const float epsilon, __global const uint2 *key, __global int *out)
{
    const int i = get_global_id(0);
    out[i] = drawn_value(3, epsilon, *key, 5u, (uint)i, 9u, 2u);
}
"""
SETS = [
    ("direction",),
    ("direction", "magnitude"),
    ("direction", "urgency"),
    ("direction", "order"),
    tuple(BRANCHES),
]
KEY = rng.key(7, "X", "2001")
STAGE, ROUND = rng.Stage.COLLECT, 12


@pytest.fixture
def values():
    """Action values with many ties."""
    return np.random.default_rng(41).integers(-3, 4, (N, N_ACTIONS)).astype(np.float32)


@pytest.fixture
def places():
    return np.random.default_rng(42).integers(0, 2**32, (2, N), np.uint32)


def compiled(device_program, branches):
    shape = Shape((4, 4), 11, branches)
    sizes = {f"LEARNS_{name.upper()}": int(name in branches) for name in BRANCHES}
    sizes["N_HEADS"] = len(shape.heads)
    return device_program(["philox.cl", "explore.cl"], WRAPPERS, sizes), shape.heads


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("branches", SETS, ids="-".join)
def test_choose_equals_numpy(device_program, values, places, branches, epsilon):
    program, heads = compiled(device_program, branches)
    (seen,) = evaluate(
        program, "test_choose", N, values[:, heads], np.float32(epsilon), KEY,
        np.uint32(rng.stream(STAGE, ROUND)), places, np.int32(N), out=[np.empty((N, 4), np.int32)],
    )  # fmt: skip
    wanted = choose(values, branches, epsilon, KEY, STAGE, ROUND, places[0], places[1])
    np.testing.assert_array_equal(seen, wanted)
    fixed = {"magnitude": 2, "order": Order.MARKET, "urgency": 2}
    for place, name in enumerate(BRANCHES):
        if name not in branches:
            assert (seen[:, place] == fixed[name]).all()


def test_choose_without_epsilon_is_argmax_and_with_one_is_uniform(values, places):
    """The definition itself, by plain NumPy."""
    names = tuple(BRANCHES)
    greedy = choose(values, names, 0.0, KEY, STAGE, ROUND, places[0], places[1])
    for branch, (start, stop) in enumerate(SPANS):
        np.testing.assert_array_equal(greedy[:, branch], values[:, start:stop].argmax(1))
    wild = choose(values, names, 1.0, KEY, STAGE, ROUND, places[0], places[1])
    for branch, size in enumerate(BRANCHES.values()):
        share = np.bincount(wild[:, branch], minlength=size) / N
        np.testing.assert_allclose(share, 1 / size, atol=0.015)
    some = choose(values, names, 0.3, KEY, STAGE, ROUND, places[0], places[1])
    # a uniform value equals the greedy one in 1/size of the draws
    for branch, size in enumerate(BRANCHES.values()):
        moved = (some[:, branch] != greedy[:, branch]).mean()
        assert moved == pytest.approx(0.3 * (1 - 1 / size), abs=0.015)


def test_a_branch_keeps_its_draws_whatever_else_is_learned(values, places):
    alone = choose(values, ("direction", "urgency"), 1.0, KEY, STAGE, ROUND, *places)
    together = choose(values, tuple(BRANCHES), 1.0, KEY, STAGE, ROUND, *places)
    for branch in learned(("direction", "urgency")):
        np.testing.assert_array_equal(alone[:, branch], together[:, branch])
    assert Direction.HOLD in together[:, 0]


def test_arg_max_takes_the_first_of_equals(device_program, values):
    program, _ = compiled(device_program, ("direction",))
    q = values[:, :4].copy()
    q[0] = 1
    (seen,) = evaluate(program, "test_arg_max", N, q, out=[np.empty(N, np.int32)])
    np.testing.assert_array_equal(seen, q.argmax(1))
    assert seen[0] == 0


def test_drawn_value_draws_twice_its_number(device_program):
    program, _ = compiled(device_program, ("direction",))
    (seen,) = evaluate(
        program, "test_drawn_value", N, np.float32(0.5), KEY, out=[np.empty(N, np.int32)]
    )
    episode = np.arange(N)
    u, v = (rng.uniform(KEY, 0, 5, episode, 9, draw) for draw in (4, 5))
    random = np.floor(v.astype(float) * 3).astype(int)
    np.testing.assert_array_equal(seen, np.where(u < 0.5, random, -1))
