// The mlp's first layer for tensor cores: a row of the bar table, and the portfolio's part.

// Portfolio floats k and k + 1 of an episode; f is its column.
inline uint portfolio_pair(__local const float *f, const int k)
{
    const float low = k < N_PORTFOLIO ? f[k * ROW] : 0.0f;
    const float high = k + 1 < N_PORTFOLIO ? f[(k + 1) * ROW] : 0.0f;
    return pack_bf16(low, high);
}

// As in mlp_group.cl: a warp takes whole blocks of 16 episodes, the first warp after those that
// walk the market.
inline void encode(const Policy *p, __local const int *place, __local const float *f, const int count,
                   const int t, __global float *past, __local int *slot, __local int *unsure,
                   __local hidden_t *h, __local float *room)
{
    const int j = get_local_id(0);
    const int lane = j % 32;
    const int row = lane / 4;
    __global const uint4 *w = (__global const uint4 *)p->w1 + lane;
    for (int m = j / 32; m < TILE / 16; m += WARPS) {
        const int e = 16 * m + row;
        __global const float4 *bar0 = (__global const float4 *)(p->table + (long)(place[e] + t) * BAR_ROW);
        __global const float4 *bar1 =
            (__global const float4 *)(p->table + (long)(place[e + 8] + t) * BAR_ROW);
        const int k = 2 * (lane % 4);
        const uint4 a = (uint4)(portfolio_pair(f + e, k), portfolio_pair(f + e + 8, k),
                                portfolio_pair(f + e, k + 8), portfolio_pair(f + e + 8, k + 8));
#pragma unroll
        for (int n = 0; n < HIDDEN1 / 16; n++) {
            const float4 x = bar0[4 * n + lane % 4];
            const float4 y = bar1[4 * n + lane % 4];
            float4 c0 = (float4)(x.xy, y.xy);
            float4 c1 = (float4)(x.zw, y.zw);
            const uint4 both = w[n * 32];
            mma_bf16(&c0, a, both.xy);
            mma_bf16(&c1, a, both.zw);
            h[(m * H_STEPS + n) * 32 + lane] = hidden_of(c0, c1);
        }
    }
    if (j < TILE) {
        slot[j] = MISS;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}
