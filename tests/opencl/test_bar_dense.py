"""bar_dense.cl: a dense layer of what depends on the bar alone."""

import numpy as np
import pytest

from backtest.agent.random_policy import random_policy
from backtest.agent.weights import N_BAR, bar_table
from opencl.buffers import empty, upload

PER_ITEM = 8
LINEAR = np.float32(-np.inf)


def run(device_program, weight, bias, x, *, first=0, bars=None, row=0, stride=None, least=LINEAR):
    """Return float32[row + bars, n_out] of the kernel `bar_dense`; rows before `row` are 0."""
    program = device_program(["bar_dense.cl"], sizes={"BARS_PER_ITEM": PER_ITEM})
    device, bars = program.device, len(x) if bars is None else bars
    n_in, n_out = weight.shape
    out = empty(device, (row + bars, n_out), np.float32)
    out.write(np.zeros(out.shape, np.float32))
    given = [upload(device, np.ascontiguousarray(a)).buffer for a in (x, weight, bias)]
    program.kernel("bar_dense")(
        device.queue, (n_out, -(-bars // PER_ITEM)), None, *given, out.buffer,
        *map(np.int32, (first, row, stride or n_in, n_in, n_out, bars)), np.float32(least),
    )  # fmt: skip
    return out.read()


@pytest.fixture
def x():
    return np.random.default_rng(51).normal(0, 1, (83, N_BAR)).astype(np.float32)


def test_bar_dense_equals_numpy(device_program, x):
    policy = random_policy((24, 8), 11, 0)
    seen = run(device_program, policy.W1_bar.T, policy.b1, x)
    wanted = bar_table(policy, x)
    np.testing.assert_allclose(seen, wanted, atol=1e-5 * np.abs(wanted).max())


def test_a_bar_does_not_depend_on_the_others(device_program, x):
    policy = random_policy((24, 8), 11, 0)
    layer = policy.W1_bar.T, policy.b1
    whole = run(device_program, *layer, x)
    np.testing.assert_array_equal(run(device_program, *layer, x[:1]), whole[:1])
    np.testing.assert_array_equal(run(device_program, *layer, x[5:42]), whole[5:42])
    inside = run(device_program, *layer, x, first=5, bars=37, row=3)
    np.testing.assert_array_equal(inside[3:], whole[5:42])
    assert not inside[:3].any()
    changed = x.copy()
    changed[40:] += 1
    np.testing.assert_array_equal(run(device_program, *layer, changed)[:40], whole[:40])


def test_known_answer(device_program):
    """One weight a neuron: neuron j of bar i is max(j - 3 + x[i][j], least)."""
    weight, bias = np.eye(6, 4, dtype=np.float32), np.arange(4, dtype=np.float32) - 3
    x = np.arange(9 * 10, dtype=np.float32).reshape(9, 10) % 7 - 3
    seen = run(device_program, weight, bias, x, stride=10)
    np.testing.assert_array_equal(seen, x[:, :4] + bias)
    bounded = run(device_program, weight, bias, x, stride=10, least=0.0)
    np.testing.assert_array_equal(bounded, np.maximum(x[:, :4] + bias, 0))
