"""aux_bypass.cl against backtest/agent/aux_bypass.py, bit for bit."""

import numpy as np
import pytest

from backtest.agent import aux_bypass as oracle
from backtest.agent.weights import centred
from opencl.aux_bypass import FILES, SIZES, AuxBypass
from opencl.buffers import empty, upload
from tests.opencl.wrapping import evaluate

WRAPPERS = """
__kernel void test_sum4(__global const float *x, __global float *out)
{
    const int i = get_global_id(0);
    out[i] = sum4(vload4(i, x));
}

__kernel __attribute__((reqd_work_group_size(BYPASS_LANES, 1, 1))) void test_lane_tree(
    __global const float *x, __global float *out)
{
    __local float4 part[BYPASS_LANES];
    const int lane = get_local_id(0);
    vstore4(lane_tree(part, lane, vload4(lane, x)), lane, out);
}
"""


@pytest.fixture(scope="module")
def bypass(device):
    return AuxBypass(device)


def case(rows, seed=0):
    rng = np.random.default_rng(seed)
    w = centred(rng.normal(0, 1, 4).astype(np.float32))
    s = np.tanh(rng.normal(0, 1, rows)).astype(np.float32)
    dq, q = rng.normal(0, 10.0 ** rng.integers(-4, 3, (2, rows, 4))).astype(np.float32)
    return q, dq, w, s, rng.normal(0, 1, rows).astype(np.float32)


def test_sum4_and_lane_tree(device_program):
    program = device_program(list(FILES), WRAPPERS, SIZES)
    x = np.random.default_rng(1).normal(0, 1, (64, 4)).astype(np.float32)
    (sums,) = evaluate(program, "test_sum4", 64, x, out=[np.empty(64, np.float32)])
    np.testing.assert_array_equal(sums, (x[:, 0] + x[:, 1]) + (x[:, 2] + x[:, 3]))
    given, out = upload(program.device, x), empty(program.device, (64, 4), np.float32)
    queue = program.device.queue
    program.kernel("test_lane_tree")(queue, (64,), (64,), given.buffer, out.buffer)
    tree = out.read()
    np.testing.assert_array_equal(tree, np.tile(oracle.ordered_sum(x.T), (64, 1)))


# one row, a part of a block, whole blocks, more blocks than lanes
ROWS = (1, 63, 256, 1024, 1025, 70_000)


@pytest.mark.parametrize("rows", ROWS)
def test_aux_to_q_dir_bias(bypass, rows):
    q, _, w, s, _ = case(rows)
    seen = bypass.bias(q, w, s)
    np.testing.assert_array_equal(seen, oracle.aux_to_q_dir_bias(q, w, s))
    assert not np.array_equal(seen, q)
    # weights of zero are no bypass, bit for bit
    np.testing.assert_array_equal(bypass.bias(q, np.zeros(4, np.float32), s), q)


@pytest.mark.parametrize("rows", ROWS)
def test_aux_to_q_dir_backward(bypass, rows):
    """The block sums, and aux_to_q_dir_total over them."""
    _, dq, w, s, ds = case(rows, seed=2)
    wanted, spread = oracle.aux_to_q_dir_backward(dq, w, s, 1 / rows, ds)
    seen, seen_ds = bypass.backward(dq, w, s, 1 / rows, ds)
    np.testing.assert_array_equal(seen, wanted)
    np.testing.assert_array_equal(seen_ds, spread)
    detached, nothing = bypass.backward(dq, w, s, 1 / rows)
    np.testing.assert_array_equal(detached, wanted)
    assert nothing is None


def test_no_rows(bypass):
    _, dq, w, s, ds = case(0)
    seen, seen_ds = bypass.backward(dq, w, s, 1.0, ds)
    assert seen.tolist() == [0] * 4 and len(seen_ds) == 0
    assert bypass.bias(dq, w, s).shape == (0, 4)
