"""bar_dense.cl: a dense layer of what depends on the bar alone."""

import numpy as np
import pytest

from backtest.agent.random_policy import random_policy
from backtest.agent.weights import N_BAR, bar_table
from opencl.buffers import empty, upload
from opencl.rollout.tables import Layer

PER_ITEM = 8
LINEAR = -np.inf
HIDDEN = 21  # two blocks of eight columns and a rest


def run(
    device_program, weight, bias, x, *,
    first=0, rows=None, parts=1, first_out=0, out_stride=None, at=0, least=LINEAR,
):  # fmt: skip
    """Return all rows of out after the kernel `bar_dense`; it was 0 before."""
    program = device_program(["bar_dense.cl"], sizes={"BARS_PER_ITEM": PER_ITEM})
    device, rows = program.device, len(x) if rows is None else rows
    layer = Layer.up(device, weight, bias)
    n_in, n_out = layer.shape
    stride = out_stride or parts * n_out
    out = empty(device, (first_out + -(-rows // parts) + 1, stride), np.float32)
    out.write(np.zeros(out.shape, np.float32))
    sizes = (first, x.shape[1], n_in, n_out, rows, parts, first_out, stride, at)
    size = -(-n_out // 8), -(-rows // PER_ITEM) + 1  # more rows than there are
    program.kernel("bar_dense")(
        device.queue, size, None,
        *(a.buffer for a in (upload(device, x), layer.weight, layer.bias, out)),
        *map(np.int32, sizes), np.float32(least),
    )  # fmt: skip
    found = out.read()
    assert not found[:first_out].any() and not found[-1].any()
    return found[first_out:-1]


@pytest.fixture
def x():
    return np.random.default_rng(51).normal(0, 1, (83, N_BAR)).astype(np.float32)


def test_bar_dense_equals_numpy(device_program, x):
    policy = random_policy((HIDDEN, 8), 11, 0)
    seen = run(device_program, policy.W1_bar, policy.b1, x)
    wanted = bar_table(policy, x)
    np.testing.assert_allclose(seen, wanted, atol=1e-5 * np.abs(wanted).max())


def test_a_bar_does_not_depend_on_the_others(device_program, x):
    policy = random_policy((HIDDEN, 8), 11, 0)
    layer = policy.W1_bar, policy.b1
    whole = run(device_program, *layer, x)
    np.testing.assert_array_equal(run(device_program, *layer, x[:1]), whole[:1])
    np.testing.assert_array_equal(run(device_program, *layer, x[5:42]), whole[5:42])
    inside = run(device_program, *layer, x, first=5, rows=37, first_out=3)
    np.testing.assert_array_equal(inside, whole[5:42])
    changed = x.copy()
    changed[40:] += 1
    np.testing.assert_array_equal(run(device_program, *layer, changed)[:40], whole[:40])


def test_known_answer(device_program):
    """One weight a neuron: neuron j of row i is max(j - 3 + x[i][j], least)."""
    weight, bias = np.eye(4, 6, dtype=np.float32), np.arange(4, dtype=np.float32) - 3
    x = np.arange(12 * 10, dtype=np.float32).reshape(12, 10) % 7 - 3
    wanted = x[:, :4] + bias
    np.testing.assert_array_equal(run(device_program, weight, bias, x), wanted)
    bounded = run(device_program, weight, bias, x, least=0.0)
    np.testing.assert_array_equal(bounded, np.maximum(wanted, 0))
    # three rows make one, from column 2 on
    wide = run(device_program, weight, bias, x, parts=3, out_stride=15, at=2)
    np.testing.assert_array_equal(wide[:, 2:14], wanted.reshape(4, 12))
    assert not wide[:, :2].any() and not wide[:, 14].any()
