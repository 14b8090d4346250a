"""layers_lanes.cl and layers_group.cl: dense layers and expected values, function by function."""

import numpy as np

from tests.opencl.wrapping import evaluate

ATOMS = 11


def test_dense_lanes_add_lanes_relu_lanes_and_expected_lanes(device_program):
    wrappers = """
__kernel void test_lanes(__global const float *weight, __global const float *bias,
                         __global const float *z, __global const float *in, __global float *out,
                         __global float *twice, __global float *expected)
{
    lanes_t x[6], y[HEAD];
    for (int k = 0; k < 6; k++) {
        x[k] = vload16(k, in);
    }
    dense_lanes(weight, bias, x, 6, y, HEAD);
    for (int j = 0; j < HEAD; j++) {
        vstore16(y[j], j, out);
    }
    vstore16(expected_lanes(y, z), 0, expected);
    add_lanes(weight, x, 6, y, HEAD);
    relu_lanes(y, HEAD);
    for (int j = 0; j < HEAD; j++) {
        vstore16(y[j], j, twice);
    }
}
"""
    program = device_program(
        ["layers_lanes.cl"], wrappers, {"ATOMS": ATOMS, "HEAD": 12, "LANES": 16}
    )
    draw = np.random.default_rng(61)
    weight, bias, z, x = (
        draw.normal(0, 1, shape).astype(np.float32) for shape in ((12, 6), 12, ATOMS, (6, 16))
    )
    out, twice, expected = evaluate(
        program, "test_lanes", 1, weight, bias, z, x,
        out=[*np.empty((2, 12, 16), np.float32), np.empty(16, np.float32)],
    )  # fmt: skip
    logits = weight @ x + bias[:, None]
    np.testing.assert_allclose(out, logits, atol=1e-5)
    np.testing.assert_allclose(twice, np.maximum(logits + weight @ x, 0), atol=1e-5)
    np.testing.assert_allclose(expected, mean_return(logits[:ATOMS], z), rtol=1e-5)


def test_store_row_accumulate_and_expected_local(device_program):
    wrappers = """
__kernel void test_group(__global const float *weight, __global const float *in,
                         __global const float *z, __global float *out, __global float *expected)
{
    __local float shared[ATOMS * ROW] __attribute__((aligned(16))); // one work-item
    float sum[TILE];
    for (int k = 0; k < ATOMS; k++) {
        for (int e = 0; e < TILE; e++) {
            sum[e] = in[k * TILE + e];
        }
        store_row(shared + k * ROW, sum, -4.0f);
    }
    for (int e = 0; e < TILE; e++) {
        sum[e] = 1.0f;
    }
    for (int k = 0; k < ATOMS; k++) {
        accumulate(sum, weight[k], shared + k * ROW);
    }
    for (int e = 0; e < TILE; e++) {
        out[e] = sum[e];
        expected[e] = expected_local(shared + e, z);
    }
}
"""
    sizes = {"ATOMS": ATOMS, "TILE": 8, "ROW": 12}
    program = device_program(["layers_group.cl"], wrappers, sizes)
    draw = np.random.default_rng(62)
    weight, logits, z = (
        draw.normal(0, 3, shape).astype(np.float32) for shape in (ATOMS, (ATOMS, 8), ATOMS)
    )
    out, expected = evaluate(
        program, "test_group", 1, weight, logits, z,
        out=[np.empty(8, np.float32), np.empty(8, np.float32)],
    )  # fmt: skip
    logits = np.maximum(logits, -4)  # what store_row kept
    np.testing.assert_allclose(out, 1 + weight @ logits, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(expected, mean_return(logits, z), rtol=1e-5)


def mean_return(logits, z):
    p = np.exp(logits.astype(float) - logits.max(axis=0))
    return (p / p.sum(axis=0)).T @ z
