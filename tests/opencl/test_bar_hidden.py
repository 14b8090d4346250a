"""bar_hidden.cl: the first layer's part that depends on the bar alone."""

import numpy as np
import pytest

from backtest.agent.random_policy import random_policy
from backtest.agent.weights import N_BAR, bar_table

PER_ITEM = 8


def run(device_program, policies, x, hidden):
    """Return float32[policies, bars, hidden] of the kernel `bar_hidden`."""
    sizes = {"HIDDEN1": hidden, "N_BAR_PART": N_BAR, "BARS_PER_ITEM": PER_ITEM}
    program = device_program(["bar_hidden.cl"], sizes=sizes)
    device = program.device
    w1 = np.stack([p.W1_bar.T for p in policies])
    b1 = np.stack([p.b1 for p in policies])
    from opencl.buffers import empty, upload

    out = empty(device, (len(policies), len(x), hidden), np.float32)
    shape = (hidden, -(-len(x) // PER_ITEM), len(policies))
    given = [upload(device, np.ascontiguousarray(a)).buffer for a in (x, w1, b1)]
    kernel = program.kernel("bar_hidden")
    kernel(device.queue, shape, None, *given, out.buffer, np.int32(len(x)))
    return out.read()


@pytest.fixture
def x():
    return np.random.default_rng(51).normal(0, 1, (83, N_BAR)).astype(np.float32)


def test_bar_hidden_equals_numpy_for_each_policy(device_program, x):
    policies = [random_policy((24, 8), 11, seed) for seed in range(3)]
    seen = run(device_program, policies, x, 24)
    for policy, mine in zip(policies, seen, strict=True):
        wanted = bar_table(policy, x)
        np.testing.assert_allclose(mine, wanted, atol=1e-5 * np.abs(wanted).max())


def test_a_bar_does_not_depend_on_the_others(device_program, x):
    policies = [random_policy((24, 8), 11, 0)]
    whole = run(device_program, policies, x, 24)
    np.testing.assert_array_equal(run(device_program, policies, x[:1], 24), whole[:, :1])
    np.testing.assert_array_equal(run(device_program, policies, x[5:42], 24), whole[:, 5:42])
    changed = x.copy()
    changed[40:] += 1
    np.testing.assert_array_equal(run(device_program, policies, changed, 24)[:, :40], whole[:, :40])


def test_known_answer(device_program):
    """One weight a neuron: neuron j of bar i is b1[j] + x[i][j]."""
    policy = random_policy((24, 8), 11, 0)
    policy.W1_bar[:] = np.eye(24, N_BAR)
    policy.b1[:] = np.arange(24)
    x = np.arange(9 * N_BAR, dtype=np.float32).reshape(9, N_BAR)
    seen = run(device_program, [policy], x, 24)
    np.testing.assert_array_equal(seen[0], x[:, :24] + np.arange(24))
