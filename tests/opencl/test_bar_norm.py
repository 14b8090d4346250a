"""bar_norm.cl: hidden layers freed of their size."""

import numpy as np

from backtest.agent.scenario_weights import NORM_EPS, normalised
from opencl.buffers import empty


def test_bar_norm_equals_numpy(device_program):
    program = device_program(["bar_norm.cl"])
    rng = np.random.default_rng(52)
    hidden = (rng.normal(0, 1, (37, 24)) * rng.uniform(0.01, 100, (37, 1))).astype(np.float32)
    hidden[3] = 7.0  # no spread: zeros, not NaN
    held = empty(program.device, hidden.shape, np.float32)
    held.write(hidden)
    kernel = program.kernel("bar_norm")
    sizes = np.int32(len(hidden)), np.int32(24)
    kernel(program.device.queue, (len(hidden) + 3,), None, held.buffer, *sizes, NORM_EPS)
    seen, wanted = held.read(), np.maximum(normalised(hidden), 0)
    assert not seen[3].any()
    np.testing.assert_allclose(seen, wanted, atol=1e-5)
    assert (seen >= 0).all()
