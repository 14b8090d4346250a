"""tensor.cl, function by function: rounding, exponentials, exchange of lanes, products of tiles."""

import numpy as np
import pytest

from opencl.rollout.operands import bf16
from opencl.tensor_probe import has_tensor_cores, operands
from tests.opencl import emulation
from tests.opencl.wrapping import evaluate

WRAPPERS = """
__kernel WARP_SIZE __attribute__((reqd_work_group_size(32, 1, 1))) void test_tensor(
    __global const float2 *x, __global uint *packed, __global float2 *halves, __global float *power,
    __global uint *moved, __global float *crossed)
{
    const int i = get_global_id(0);
    packed[i] = pack_bf16(x[i].x, x[i].y);
    packed[32 + i] = pack_relu_bf16(x[i].x, x[i].y);
    halves[i] = (float2)(low_bf16(packed[i]), high_bf16(packed[i]));
    power[i] = exp2_fast(x[i].x);
    moved[i] = shuffle((uint)(100 + i), (uint)(31 - i));
    crossed[i] = butterfly((float)i, 6u);
}

__kernel WARP_SIZE __attribute__((reqd_work_group_size(32, 1, 1))) void test_mma_bf16(
    __global const uint4 *a, __global const uint2 *b, __global float4 *c)
{
    const int lane = get_global_id(0);
    float4 sum = c[lane];
    mma_bf16(&sum, a[lane], b[lane]);
    c[lane] = sum;
}
"""


@pytest.fixture
def program(device, device_program, monkeypatch):
    """Of the device, or of its emulation, which other tests rely on."""
    if device not in emulation.DEVICES:
        pytest.skip("needs an NVIDIA GPU's tensor cores, or Intel's runtime to emulate them")
    native = has_tensor_cores(device)
    if not native:
        monkeypatch.setattr("opencl.programs.read", emulation.emulated)
    text = WRAPPERS.replace("WARP_SIZE", "" if native else emulation.WARP)
    return device_program(["tensor.cl"], text)


def test_rounding_exponentials_and_exchange(program):
    x = np.random.default_rng(3).normal(0, 30, (32, 2)).astype(np.float32)
    x[0, 0] = -200  # below the smallest normal number
    packed, halves, power, moved, crossed = evaluate(
        program, "test_tensor", 32, x,
        out=[np.empty(64, np.uint32), np.empty((32, 2), np.float32), np.empty(32, np.float32),
             np.empty(32, np.uint32), np.empty(32, np.float32)], group=32,
    )  # fmt: skip
    words = bf16(x).astype(np.uint32)
    np.testing.assert_array_equal(packed[:32], words[:, 0] | words[:, 1] << 16)
    words = bf16(np.maximum(x, 0)).astype(np.uint32)
    np.testing.assert_array_equal(packed[32:], words[:, 0] | words[:, 1] << 16)
    np.testing.assert_array_equal(halves, (bf16(x).astype(np.uint32) << 16).view(np.float32))
    np.testing.assert_allclose(power, np.exp2(x[:, 0].astype(float)), rtol=2**-21, atol=2.0**-126)
    lane = np.arange(32)
    np.testing.assert_array_equal(moved, 131 - lane)
    np.testing.assert_array_equal(crossed, lane ^ 6)


def test_mma_bf16_multiplies_tiles(program):
    a, b, c = operands()  # bf16 holds them, so the sums are exact
    g, t = np.divmod(np.arange(32), 4)

    def word(first, second):
        return bf16(first).astype(np.uint32) | bf16(second).astype(np.uint32) << 16

    rows, left, right = (g, g + 8), 2 * t, 2 * t + 8
    mine = [word(a[r, k], a[r, k + 1]) for k in (left, right) for r in rows]
    theirs = [word(b[k, g], b[k + 1, g]) for k in (left, right)]
    sums = np.stack([c[r, k] for r in rows for k in (left, left + 1)], axis=1)
    (seen,) = evaluate(
        program, "test_mma_bf16", 32, np.stack(mine, axis=1), np.stack(theirs, axis=1),
        out=[sums], group=32,
    )  # fmt: skip
    wanted = a @ b + c
    np.testing.assert_array_equal(
        seen, np.stack([wanted[r, k] for r in rows for k in (left, left + 1)], axis=1)
    )
