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
    return (uint4)(pack_relu_bf16(c0.x, c0.y), pack_relu_bf16(c0.z, c0.w), pack_relu_bf16(c1.x, c1.y),
                   pack_relu_bf16(c1.z, c1.w));
}

// The second hidden layer takes the place of the first. A warp has TRUNK_STEPS blocks of 16 neurons,
// whose weights stay in registers while all episodes pass, MMA_TILES blocks of 16 at a time: so many
// sums do not wait for each other. Ends behind a barrier.
inline void trunk(const Policy *p, __local hidden_t *h)
{
    const int lane = get_local_id(0) % 32;
    const int first = get_local_id(0) / 32 * TRUNK_STEPS;
    uint4 b[TRUNK_STEPS][STEPS1];
    float4 bias[TRUNK_STEPS];
#pragma unroll
    for (int n = 0; n < TRUNK_STEPS; n++) { // blocks beyond the last repeat it and are not stored
        const int block = min(first + n, STEPS2 - 1);
        bias[n] = ((__global const float4 *)p->b2)[4 * block + lane % 4];
#pragma unroll
        for (int k = 0; k < STEPS1; k++) {
            b[n][k] = ((__global const uint4 *)p->w2)[(block * STEPS1 + k) * 32 + lane];
        }
    }
    for (int m = 0; m < TILE / 16; m += MMA_TILES) {
        uint4 made[MMA_TILES][TRUNK_STEPS];
        if (first < STEPS2) {
            float4 c[MMA_TILES][2 * TRUNK_STEPS];
#pragma unroll
            for (int i = 0; i < MMA_TILES; i++) {
#pragma unroll
                for (int n = 0; n < TRUNK_STEPS; n++) {
                    c[i][2 * n] = bias[n].xyxy;
                    c[i][2 * n + 1] = bias[n].zwzw;
                }
            }
#pragma unroll
            for (int k = 0; k < STEPS1; k++) {
                uint4 a[MMA_TILES];
#pragma unroll
                for (int i = 0; i < MMA_TILES; i++) {
                    a[i] = h[((m + i) * H_STEPS + k) * 32 + lane];
                }
#pragma unroll
                for (int n = 0; n < TRUNK_STEPS; n++) {
#pragma unroll
                    for (int i = 0; i < MMA_TILES; i++) {
                        mma_bf16(&c[i][2 * n], a[i], b[n][k].xy);
                        mma_bf16(&c[i][2 * n + 1], a[i], b[n][k].zw);
                    }
                }
            }
#pragma unroll
            for (int i = 0; i < MMA_TILES; i++) {
#pragma unroll
                for (int n = 0; n < TRUNK_STEPS; n++) {
                    made[i][n] = hidden_of(c[i][2 * n], c[i][2 * n + 1]);
                }
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE); // these episodes were read by all warps
#pragma unroll
        for (int i = 0; i < MMA_TILES; i++) {
#pragma unroll
            for (int n = 0; n < TRUNK_STEPS; n++) {
                if (first + n < STEPS2) {
                    h[((m + i) * H_STEPS + first + n) * 32 + lane] = made[i][n];
                }
            }
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

// Sums of a row of four lanes: lanes of even t receive that of x.x, the others that of x.y.
inline float row_sum(const float2 x, const int t)
{
    const float pair = (t % 2 == 0 ? x.x : x.y) + butterfly(t % 2 == 0 ? x.y : x.x, 1u);
    return pair + butterfly(pair, 2u);
}

// Expected returns, q [N_HEADS][ROW]; behind it lie rest [WARPS][ROW]. Warps share the heads of all
// episodes evenly; one takes HEAD_PASS blocks of eight atoms at a time, whose weights stay in
// registers while its episodes pass.
// Logits come in units of log 2 and less their mean, so the largest is 0 or more and no sum of
// exponentials vanishes; LIMIT keeps it finite: 2^120 of all atoms. Atoms are evenly spaced, z is (first, distance).
// Ends behind a barrier.
inline void heads(const Policy *p, __local const hidden_t *h, __local float *q)
{
    const int lane = get_local_id(0) % 32;
    const int t = lane % 4;
    const int warp = get_local_id(0) / 32;
    const int parts = TILE / 16 / MMA_TILES; // of a head
    const int begin = warp * N_HEADS * parts / WARPS;
    const int end = (warp + 1) * N_HEADS * parts / WARPS;
    __local float *rest = q + (N_HEADS + warp) * ROW;
    for (int head = begin / parts; head * parts < end; head++) {
        const int m_begin = max(begin - head * parts, 0) * MMA_TILES;
        const int m_end = min(end - head * parts, parts) * MMA_TILES;
#pragma unroll
        for (int first = 0; first < HEAD / 8; first += HEAD_PASS) {
            const int blocks = min(HEAD_PASS, HEAD / 8 - first);
            __global const uint4 *w =
                (__global const uint4 *)p->w3 + (head * (HEAD / 8) + first) * (STEPS2 / 2) * 32 + lane;
            __global const float2 *bias = (__global const float2 *)(p->b3 + head * HEAD + first * 8) + t;
            uint4 b[HEAD_PASS][STEPS2 / 2];
#pragma unroll
            for (int n = 0; n < blocks; n++) {
#pragma unroll
                for (int k = 0; k < STEPS2 / 2; k++) {
                    b[n][k] = w[(n * (STEPS2 / 2) + k) * 32];
                }
            }
            for (int m = m_begin; m < m_end; m += MMA_TILES) {
                float4 c[MMA_TILES][HEAD_PASS];
#pragma unroll
                for (int n = 0; n < blocks; n++) {
#pragma unroll
                    for (int i = 0; i < MMA_TILES; i++) {
                        c[i][n] = bias[4 * n].xyxy;
                    }
                }
#pragma unroll
                for (int k = 0; k < STEPS2; k++) {
                    uint4 a[MMA_TILES];
#pragma unroll
                    for (int i = 0; i < MMA_TILES; i++) {
                        a[i] = h[((m + i) * H_STEPS + k) * 32 + lane];
                    }
#pragma unroll
                    for (int n = 0; n < blocks; n++) {
#pragma unroll
                        for (int i = 0; i < MMA_TILES; i++) {
                            mma_bf16(&c[i][n], a[i], k % 2 == 0 ? b[n][k / 2].xy : b[n][k / 2].zw);
                        }
                    }
                }
#pragma unroll
                for (int i = 0; i < MMA_TILES; i++) {
                    float2 num = (float2)(0.0f);
                    float2 den = (float2)(0.0f);
#pragma unroll
                    for (int n = 0; n < blocks; n++) { // atoms 8*(first + n) + 2*t and the next, less 2*t
                        const float4 l = min(c[i][n], (float4)(LIMIT));
                        const float2 one = (float2)(exp2_fast(l.x), exp2_fast(l.z));
                        const float2 two = (float2)(exp2_fast(l.y), exp2_fast(l.w));
                        const float atom = 8.0f * (first + n);
                        num = fma(one, (float2)(atom), fma(two, (float2)(atom + 1.0f), num));
                        den = den + (one + two);
                    }
                    num = fma(den, (float2)(2.0f * t), num);
                    float upper = row_sum(num, t);
                    float lower = row_sum(den, t);
                    if (t < 2) { // row lane/4, or the one 8 behind it
                        const int e = 16 * (m + i) + 8 * t + lane / 4;
                        if (first > 0) {
                            upper = upper + q[head * ROW + e];
                            lower = lower + rest[e];
                        }
                        if (first + HEAD_PASS < HEAD / 8) {
                            q[head * ROW + e] = upper;
                            rest[e] = lower;
                        } else {
                            q[head * ROW + e] = fma(native_divide(upper, lower), p->z[1], p->z[0]);
                        }
                    }
                }
            }
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}
