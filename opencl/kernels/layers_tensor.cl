// Layers for NVIDIA's tensor cores: products of bf16, sums of float32. A work-group is WARPS warps.
//
// The activations h of TILE episodes lie in local memory as A operands of m16n8k16 (tensor.cl),
// [TILE/16][H_STEPS][32 lanes]: hidden_t is uint4, what a lane holds of 16 episodes and 16 neurons.
// Column 8*i + 2*t + c of such a block is its neuron 4*t + 2*i + c (c, i 0 or 1; t 0 to 3), so that
// a lane's four neurons are neighbours in memory elsewhere. The host packs the weights accordingly
// (packing.py), two B operands a uint4: as w1 and w2 two blocks of eight neurons of one input block, as
// w3 two input blocks of one block of eight atoms.

typedef uint4 hidden_t;

// h of neurons n and n + 1 (n even) of episode e.
inline void store_pair(__local hidden_t *h, const int n, const int e, const float low, const float high)
{
    const int lane = e % 8 * 4 + n % 16 / 4;
    __local uint *to = (__local uint *)(h + (e / 16 * H_STEPS + n / 16) * 32 + lane);
    to[n % 4 / 2 * 2 + e % 16 / 8] = pack_bf16(low, high);
}

// What a lane keeps of 16 neurons: sums c0 and c1 of columns 0 to 7 and 8 to 15, rectified.
inline uint4 hidden_of(const float4 c0, const float4 c1)
{
    const float4 a = max(c0, (float4)(0.0f));
    const float4 b = max(c1, (float4)(0.0f));
    return (uint4)(pack_bf16(a.x, a.y), pack_bf16(a.z, a.w), pack_bf16(b.x, b.y), pack_bf16(b.z, b.w));
}

// The second hidden layer takes the place of the first: a warp turns whole blocks of 16 episodes.
// Ends behind a barrier.
inline void trunk(const Policy *p, __local hidden_t *h)
{
    const int lane = get_local_id(0) % 32;
    __global const uint4 *w = (__global const uint4 *)p->w2 + lane;
    __global const float4 *bias = (__global const float4 *)p->b2 + lane % 4;
    for (int m = get_local_id(0) / 32; m < TILE / 16; m += WARPS) {
        __local uint4 *mine = h + m * H_STEPS * 32 + lane;
        uint4 a[HIDDEN1 / 16];
#pragma unroll
        for (int k = 0; k < HIDDEN1 / 16; k++) {
            a[k] = mine[k * 32];
        }
        for (int n = 0; n < HIDDEN2 / 16; n++) {
            const float4 b = bias[4 * n];
            float4 c0 = b.xyxy;
            float4 c1 = b.zwzw;
#pragma unroll
            for (int k = 0; k < HIDDEN1 / 16; k++) {
                const uint4 both = w[(n * (HIDDEN1 / 16) + k) * 32];
                mma_bf16(&c0, a[k], both.xy);
                mma_bf16(&c1, a[k], both.zw);
            }
            mine[n * 32] = hidden_of(c0, c1);
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

// The sum over a row's four lanes.
inline float over_row(const float x)
{
    const float two = x + butterfly(x, 1u);
    return two + butterfly(two, 2u);
}

// The largest of a row's four lanes.
inline float top_of_row(const float x)
{
    const float two = max(x, butterfly(x, 1u));
    return max(two, butterfly(two, 2u));
}

// Expected returns, q [N_HEADS][ROW]. A warp takes a head: its weights stay in registers while all
// episodes pass. Logits come in units of log 2; atoms are evenly spaced, z is (first, distance).
// Ends behind a barrier.
inline void heads(const Policy *p, __local const hidden_t *h, __local float *q)
{
    const int lane = get_local_id(0) % 32;
    const int t = lane % 4;
    for (int head = get_local_id(0) / 32; head < N_HEADS; head += WARPS) {
        __global const uint4 *w =
            (__global const uint4 *)p->w3 + head * (HEAD / 8) * (HIDDEN2 / 32) * 32 + lane;
        uint4 b[HEAD / 8][HIDDEN2 / 32];
#pragma unroll
        for (int n = 0; n < HEAD / 8; n++) {
#pragma unroll
            for (int k = 0; k < HIDDEN2 / 32; k++) {
                b[n][k] = w[(n * (HIDDEN2 / 32) + k) * 32];
            }
        }
        __global const float2 *bias = (__global const float2 *)(p->b3 + head * HEAD) + t;
        for (int m = 0; m < TILE / 16; m++) {
            float4 c[HEAD / 8];
#pragma unroll
            for (int n = 0; n < HEAD / 8; n++) {
                c[n] = bias[4 * n].xyxy;
            }
#pragma unroll
            for (int k = 0; k < HIDDEN2 / 32; k++) {
                const uint4 a0 = h[(m * H_STEPS + 2 * k) * 32 + lane];
                const uint4 a1 = h[(m * H_STEPS + 2 * k + 1) * 32 + lane];
#pragma unroll
                for (int n = 0; n < HEAD / 8; n++) {
                    mma_bf16(&c[n], a0, b[n][k].xy);
                }
#pragma unroll
                for (int n = 0; n < HEAD / 8; n++) {
                    mma_bf16(&c[n], a1, b[n][k].zw);
                }
            }
            float2 top = (float2)(-INFINITY);
#pragma unroll
            for (int n = 0; n < HEAD / 8; n++) {
                top = max(top, max(c[n].xz, c[n].yw));
            }
            top = (float2)(top_of_row(top.x), top_of_row(top.y));
            float2 num = (float2)(0.0f);
            float2 den = (float2)(0.0f);
#pragma unroll
            for (int n = 0; n < HEAD / 8; n++) { // atom 8*n + 2*t, less 2*t
                const float2 even = native_exp2(c[n].xz - top);
                const float2 odd = native_exp2(c[n].yw - top);
                num = fma(even, (float2)(8.0f * n), fma(odd, (float2)(8.0f * n + 1.0f), num));
                den = den + (even + odd);
            }
            num = fma(den, (float2)(2.0f * t), num);
            num = (float2)(over_row(num.x), over_row(num.y));
            den = (float2)(over_row(den.x), over_row(den.y));
            if (t < 2) { // the row's first lane has episode lane/4 of 16, the second the one 8 behind it
                const float mean = t == 0 ? num.x / den.x : num.y / den.y;
                q[head * ROW + 16 * m + 8 * t + lane / 4] = fma(mean, p->z[1], p->z[0]);
            }
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}
