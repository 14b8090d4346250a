// What bit-equality with NumPy float32 rests on; opencl/probe.py compares. No other kernel uses it.

__kernel void exactness(__global const float *x, __global const float *y,
                        __global float *out, const int n) // out (4, n)
{
    const int i = get_global_id(0);
    if (i >= n)
        return;
    out[i] = x[i] / y[i];
    out[n + i] = sqrt(x[i]);
    out[2 * n + i] = x[i] * y[i] - x[i]; // a fused multiply-add would round once, not twice
    out[3 * n + i] = x[i] * 0x1.0p-126f; // subnormal: kept, not flushed to zero
}
