"""NVIDIA's tensor cores on Intel's CPU runtime: what `tensor.cl` does, by sub-groups of 32 items.

Its functions in plain OpenCL C; a warp's lanes read each other by `intel_sub_group_shuffle`. Slow,
but the kernels around them are those of the product.
"""

import re

from opencl.build import read
from opencl.devices import INTEL, all_devices
from opencl.tensor_probe import has_tensor_cores

TENSOR = """
inline uint round_bf16(const float x)
{
    const uint bits = as_uint(x);
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}
inline uint pack_bf16(const float low, const float high)
{
    return round_bf16(low) | round_bf16(high) << 16;
}
inline uint pack_relu_bf16(const float low, const float high)
{
    return pack_bf16(max(low, 0.0f), max(high, 0.0f));
}
inline float exp2_fast(const float x) { return exp2(x); }
inline float low_bf16(const uint packed) { return as_float(packed << 16); }
inline float high_bf16(const uint packed) { return as_float(packed & 0xffff0000u); }
inline uint shuffle(const uint value, const uint lane)
{
    return intel_sub_group_shuffle(value, lane);
}
inline float butterfly(const float value, const uint mask)
{
    return intel_sub_group_shuffle_xor(value, mask);
}
inline uint turn_8x8(const uint rows)
{
    const uint lane = get_sub_group_local_id();
    const uint column = lane / 4, row = lane % 4 * 2; // element (row, column) and the one below it
    const uint a = shuffle(rows, row * 4 + column / 2);
    const uint b = shuffle(rows, row * 4 + 4 + column / 2);
    const uint shift = column % 2 * 16;
    return (a >> shift & 0xffffu) | (b >> shift & 0xffffu) << 16;
}
inline void mma_bf16(float4 *c, const uint4 a, const uint2 b)
{
    const uint lane = get_sub_group_local_id();
    const uint row = lane / 4 * 4, column = lane % 4 * 8; // lanes that hold them
    float4 sum = *c;
    for (uint k = 0; k < 8; k++) { // inputs 2k, 2k + 1
        const uint upper = shuffle(k < 4 ? a.x : a.z, row + k % 4);
        const uint lower = shuffle(k < 4 ? a.y : a.w, row + k % 4);
        const uint left = shuffle(k < 4 ? b.x : b.y, column + k % 4);
        const uint right = shuffle(k < 4 ? b.x : b.y, column + 4 + k % 4);
        sum.x += low_bf16(upper) * low_bf16(left) + high_bf16(upper) * high_bf16(left);
        sum.y += low_bf16(upper) * low_bf16(right) + high_bf16(upper) * high_bf16(right);
        sum.z += low_bf16(lower) * low_bf16(left) + high_bf16(lower) * high_bf16(left);
        sum.w += low_bf16(lower) * low_bf16(right) + high_bf16(lower) * high_bf16(right);
    }
    *c = sum;
}
"""
WARP = "__attribute__((intel_reqd_sub_group_size(32)))"
# devices that run kernels for tensor cores, the others by what is above
DEVICES = [d for d in all_devices() if has_tensor_cores(d) or d.platform == INTEL]


def emulated(files):
    """As `opencl.build.read`, for the Intel runtime."""
    parts = [TENSOR if name == "tensor.cl" else read([name]) for name in files]
    text = "\n".join(parts)
    return re.sub(
        r"__kernel (.*?)void rollout_group", rf"__kernel {WARP} \1void rollout_group", text
    )
