"""rollout.cl: a policy's parts, rows of the output, and the forecast's way around the network."""

import numpy as np

from backtest.agent.bank.snapshot import MISS
from backtest.market.layout import BRANCHES, N_PORTFOLIO, PART, STEP
from opencl.rollout import Shape
from opencl.rollout.sizes import Sizes
from tests.opencl.wrapping import evaluate

ATOMS, ALL = 11, tuple(BRANCHES)
MLP = Sizes(Shape((24, 30), ATOMS, ALL), False, 0, "").defines()


def test_record_step_and_record_portfolio(device_program):
    """Rows go to their places, and null pointers are left alone."""
    wrappers = """
__kernel void test_records(__global const StepResult *given, const int optional,
                           __global uchar4 *actions, __global float *rewards,
                           __global float *equity, __global uchar *ends,
                           __global StepResult *trace, __global float *portfolio)
{
    const int i = get_global_id(0), n = get_global_size(0);
    const StepResult r = given[i];
    record_step(actions, rewards, equity, ends, optional ? trace : 0, i, (int4)(i, 1, 2, 0), &r);
    float state[N_PORTFOLIO];
    for (int k = 0; k < N_PORTFOLIO; k++) {
        state[k] = 100.0f * i + k;
    }
    record_portfolio(optional ? portfolio : 0, 1, n, i, state);
}
"""
    program = device_program(["rollout.cl"], wrappers, MLP)
    results = np.zeros(3, STEP.dtype)
    results["reward"], results["equity"], results["end"] = (1, 2, 3), (4, 5, 6), (0, 1, 2)
    for optional in (0, 1):
        outputs = [
            np.zeros((3, 4), np.uint8), np.zeros(3, np.float32), np.zeros(3, np.float32),
            np.zeros(3, np.uint8), np.zeros(3, STEP.dtype),
            np.zeros((2, N_PORTFOLIO, 3), np.float32),
        ]  # fmt: skip
        action, reward, equity, end, trace, portfolio = evaluate(
            program, "test_records", 3, results, np.int32(optional), out=outputs
        )
        assert action.tolist() == [[0, 1, 2, 0], [1, 1, 2, 0], [2, 1, 2, 0]]
        assert (reward.tolist(), equity.tolist()) == ([1, 2, 3], [4, 5, 6])
        assert end.tolist() == [0, 1, 2]
        assert (trace == results).all() == bool(optional)
        assert not portfolio[0].any()
        rows = 100 * np.arange(3) + np.arange(N_PORTFOLIO)[:, None]
        np.testing.assert_array_equal(portfolio[1], rows * optional)


def test_policy_at_record_slots_and_bypass(device_program):
    """Each part of the right policy, what both banks found, and alpha times the forecast."""
    wrappers = """
__kernel void test_policy_at(__global const float *x, __global const char *found,
                             __global const float4 *entries, __global const uchar *disagree,
                             const Part part, const int rows, __global int *out)
{
    const Policy p = policy_at(part, rows, x, found, x, x, x, x, x, x, x, x, x, x, x, entries,
                               disagree, x, x);
    __global const float *place[] = {p.table, p.query, p.w1, p.b1, p.w2, p.b2, p.w3, p.b3, p.z,
                                    p.alpha, p.keys, p.center, p.shift, p.guess};
    for (int i = 0; i < 14; i++) {
        out[i] = (int)(place[i] - x);
    }
    out[14] = (int)(p.found - found);
    out[15] = p.entries == 0 ? MISS : (int)(p.entries - entries);
    out[16] = (int)(p.disagree - disagree);
}

__kernel void test_record_slots(__global const char *found, const int optional,
                                __global char2 *slots)
{
    const int i = get_global_id(0);
    Policy p;
    p.found = optional > 1 ? found : 0;
    record_slots(optional ? slots : 0, i, i != 1, 3 - i, &p, i);
}

__kernel void test_bypass(__global const float *alpha, __global float *values)
{
    float mine[N_DIRECTION + 1];
    for (int a = 0; a <= N_DIRECTION; a++) {
        mine[a] = values[a];
    }
    bypass(mine, alpha, 0.5f);
    for (int a = 0; a <= N_DIRECTION; a++) {
        values[a] = mine[a];
    }
}
"""
    shape = Shape((24, 8), ATOMS, ALL, "scenario", 3, 4, 6, slots=7)
    sizes = Sizes(shape, False, 0, "")
    c = sizes.defines()
    program = device_program(["rollout.cl"], wrappers, c)
    for bank in (-1, 4):
        part = PART.pack(weights=2, table=3, bank=bank, origin=0, steps=0, base=0)
        given = np.zeros(4, np.float32), np.zeros(4, np.int8), np.zeros((1, 4), np.float32)
        (out,) = evaluate(
            program, "test_policy_at", 1, *given, np.zeros(4, np.uint8), part, np.int32(10),
            out=[np.zeros(17, np.int32)],
        )  # fmt: skip
        head = len(shape.heads) * c["HEAD"]
        weights = [
            c["QUERY_SIZE"], c["W1_SIZE"], 24, 24 * 8, 8, head * 8, head, ATOMS, 4
        ]  # fmt: skip
        task = max(bank, 0) * np.array([8 * c["TASK_ROW"], c["TASK_ROW"], 8 * c["TASK_ROW"]])
        assert out[0] == 3 * 10 * c["BAR_ROW"]
        assert out[1:10].tolist() == [2 * size for size in weights]
        assert out[10:13].tolist() == task.tolist()
        assert out[13] == max(bank, 0) * (8 + c["GUESS"] + 1) * c["GUESS"]
        assert out[14:].tolist() == [30, MISS if bank < 0 else bank * 8, max(bank, 0) * 64]
    found = np.array([5, 6, 7], np.int8)
    for optional, wanted in (
        (0, [[9, 9]] * 3),
        (1, [[3, MISS], [MISS, MISS], [1, MISS]]),
        (2, [[3, 5], [MISS, MISS], [1, 7]]),
    ):
        (out,) = evaluate(
            program, "test_record_slots", 3, found, np.int32(optional),
            out=[np.full((3, 2), 9, np.int8)],
        )  # fmt: skip
        assert out.tolist() == wanted
    alpha, values = np.array([1, -2, 0, 1], np.float32), np.arange(5, dtype=np.float32)
    (out,) = evaluate(program, "test_bypass", 1, alpha, out=[values])
    assert out.tolist() == [0.5, 0, 2, 3.5, 4]
