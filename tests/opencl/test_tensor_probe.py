"""Tensor cores: what the probe compares, who is asked, and what a wrong answer means."""

from dataclasses import replace

import numpy as np

from opencl import tensor_probe
from opencl.tensor_probe import has_tensor_cores, operands


def test_the_product_is_exact_in_any_order():
    a, b, c = operands()
    exact = a.astype(np.float64) @ b + c
    assert np.abs(exact).max() < 2**24
    np.testing.assert_array_equal(a @ b + c, exact)


def test_no_other_compiler_sees_the_assembly(device, monkeypatch):
    if device.nvidia:
        assert has_tensor_cores(device) in (True, False)
        return
    monkeypatch.setattr(tensor_probe, "_measure", lambda device: 1 / 0)
    assert not has_tensor_cores(replace(device))


def test_a_wrong_product_is_seen(device, monkeypatch):
    """A device that leaves c as it was."""
    idle = "__kernel void tensor_probe(__global const float *a, __global const float *b,"
    idle += " __global float *c, __global float *moved) {}"
    monkeypatch.setattr(tensor_probe, "read", lambda files: idle)
    assert not has_tensor_cores(replace(device, nvidia=True))
