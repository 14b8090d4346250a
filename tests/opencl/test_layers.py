"""Layers of all three kinds: dense layers and expected values, function by function.

Outputs come in blocks (`add_block`) of eight and of four on CPUs, of TRUNK_BLOCK and HEAD_BLOCK on
GPUs. With tensor cores `store_pair` and `hidden_of` lay activations, `row_sum` ends a softmax.
"""

from dataclasses import replace

import numpy as np
import pytest

from backtest.agent.random_policy import random_policy
from opencl.rollout import Shape
from opencl.rollout.packing import pack
from opencl.rollout.sizes import Sizes
from opencl.tensor_probe import has_tensor_cores
from tests.opencl import emulation
from tests.opencl.wrapping import evaluate

ATOMS = 11


@pytest.mark.parametrize("sums, n", [(4, 12), (26, 12), (26, 24), (26, 32), (26, 52)])
def test_dense_lanes_add_lanes_relu_lanes_and_expected_lanes(device_program, sums, n):
    """n outputs by 4, 4, 8, 16 and 26 at a time."""
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
    sizes = {"ATOMS": ATOMS, "HEAD": n, "LANES": 16, "LANE_SUMS": sums}
    program = device_program(["layers_lanes.cl"], wrappers, sizes)
    draw = np.random.default_rng(61)
    weight, bias, z, x = (
        draw.normal(0, 1, shape).astype(np.float32) for shape in ((n, 6), n, ATOMS, (6, 16))
    )
    out, twice, expected = evaluate(
        program, "test_lanes", 1, weight, bias, z, x,
        out=[*np.empty((2, n, 16), np.float32), np.empty(16, np.float32)],
    )  # fmt: skip
    logits = weight @ x + bias[:, None]
    np.testing.assert_allclose(out, logits, atol=1e-5)
    np.testing.assert_allclose(twice, np.maximum(logits + weight @ x, 0), atol=1e-5)
    np.testing.assert_allclose(expected, mean_return(logits[:ATOMS], z), rtol=1e-5)


GROUP = """
__kernel WARP_SIZE __attribute__((reqd_work_group_size(GROUP, 1, 1))) void test_group(
    __global const float *w2, __global const float *b2, __global const float *w3,
    __global const float *b3, __global const float *z, __global const float *in,
    __global float *values)
{
    __local hidden_t h[H_SIZE] __attribute__((aligned(16)));
    __local float q[N_HEADS * ROW] __attribute__((aligned(16)));
    Policy p;
    p.w2 = w2;
    p.b2 = b2;
    p.w3 = w3;
    p.b3 = b3;
    p.z = z;
    for (int i = get_local_id(0); i < HIDDEN1 / 2 * TILE; i += GROUP) {
        const int n = 2 * (i / TILE);
        STORE(h, n, i % TILE, in[n * TILE + i % TILE], in[(n + 1) * TILE + i % TILE]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    trunk(&p, h);
    heads(&p, h, q);
    for (int i = get_local_id(0); i < N_HEADS * TILE; i += GROUP) {
        values[i] = q[i / TILE * ROW + i % TILE];
    }
}
"""
STORE = """
#define STORE(h, n, e, low, high) h[(n) * ROW + (e)] = low; h[((n) + 1) * ROW + (e)] = high
"""


@pytest.mark.parametrize("variant", ["group", "tensor"])
def test_trunk_and_heads(device, device_program, monkeypatch, variant):
    """Weights are multiples of 1/16 and activations of 1/4: bf16 holds both, and the sums."""
    attribute = ""
    if variant == "tensor":
        if device not in emulation.DEVICES:
            pytest.skip("needs an NVIDIA GPU's tensor cores, or Intel's runtime to emulate them")
        if not has_tensor_cores(device):
            monkeypatch.setattr("opencl.programs.read", emulation.emulated)
            attribute = emulation.WARP
    monkeypatch.setattr("opencl.rollout.sizes.TILE", 16)
    monkeypatch.setattr("opencl.rollout.sizes.TENSOR_TILE", 32)
    shape = Shape((20, 30), 19, ("direction", "urgency"))  # no size divides anything
    sizes = Sizes(shape, True, 2**15, "", tensor=variant == "tensor")
    draw = np.random.default_rng(63)

    def steps(low, high, size, unit):
        return (draw.integers(low, high, size) * unit).astype(np.float32)

    policy = replace(
        random_policy((20, 30), 19),
        W2=steps(-3, 4, (30, 20), 1 / 16) * (draw.random((30, 20)) < 0.3),
        b2=steps(-4, 4, 30, 1 / 4),
        W_head=steps(-4, 5, (13 * 19, 30), 1 / 16),
        b_head=steps(-4, 5, 13 * 19, 1 / 16),
    )
    packed = {name: array[0] for name, array in pack(sizes, [policy]).items()}
    first = np.zeros((sizes.hidden[0], sizes.tile), np.float32)
    first[:20] = steps(0, 5, (20, sizes.tile), 1 / 4)
    files = ["rollout.cl", "layers_group.cl"]
    store = STORE
    if variant == "tensor":
        files = ["rollout.cl", "tensor.cl", "layers_tensor.cl"]
        store = "#define STORE store_pair"
    program = device_program(files, store + GROUP.replace("WARP_SIZE", attribute), sizes.defines())
    (seen,) = evaluate(
        program, "test_group", sizes.items,
        *(packed[name] for name in ("w2", "b2", "w3", "b3", "z")), first,
        out=[np.empty((7, sizes.tile), np.float32)], group=sizes.items,
    )  # fmt: skip
    second = np.maximum(policy.W2 @ first[:20] + policy.b2[:, None], 0)
    logits = (policy.W_head @ second + policy.b_head[:, None]).reshape(13, 19, -1)[shape.heads]
    wanted = np.stack([mean_return(head, policy.z) for head in logits])
    # of tensor cores: a weight less the mean, times log2(e), is rounded to bf16, so by 2^-9 at most
    limit = 1e-5 if variant == "group" else 2**-5
    np.testing.assert_allclose(seen, wanted, rtol=0, atol=limit * np.abs(policy.z).max())


def mean_return(logits, z):
    p = np.exp(logits.astype(float) - logits.max(axis=0))
    return (p / p.sum(axis=0)).T @ z
