// What layers_tensor.cl rests on; opencl/tensor_probe.py compares. No other kernel uses it.

// One warp: c += a*b, 16x16 by 16x8, from float32 rounded to bf16; moved [2][32]: shuffle, butterfly.
__kernel __attribute__((reqd_work_group_size(32, 1, 1))) void tensor_probe(
    __global const float *restrict a, // [16][16]
    __global const float *restrict b, // [16][8]
    __global float *restrict c,       // [16][8]
    __global float *restrict moved)   // [2][32]
{
    const int lane = get_local_id(0);
    const int g = lane / 4;
    const int t = lane % 4;
    __global const float *row = a + 16 * g + 2 * t;
    const uint4 left = (uint4)(pack_bf16(row[0], row[1]), pack_bf16(row[128], row[129]),
                               pack_bf16(row[8], row[9]), pack_bf16(row[136], row[137]));
    __global const float *column = b + 16 * t + g;
    const uint2 right =
        (uint2)(pack_bf16(column[0], column[8]), pack_bf16(column[64], column[72]));
    __global float *out = c + 8 * g + 2 * t;
    float4 sum = (float4)(out[0], out[1], out[64], out[65]);
    mma_bf16(&sum, left, right);
    out[0] = sum.x;
    out[1] = sum.y;
    out[64] = sum.z;
    out[65] = sum.w;
    moved[lane] = as_float(shuffle(as_uint(sum.x), (uint)(31 - lane)));
    moved[32 + lane] = butterfly(sum.x, 5u);
}
