// The scenario network up to the first trunk layer for tensor cores. A warp takes 16 episodes and every
// PARTS-th scenario; what it computes stays in registers. Queries are float32 (their inputs and
// weights are split into two bf16 each), tokens, shares of attention and interpretations bf16, sums
// float32. LATENT is 8 or 16, HORIZON at most 16; what lacks to 16 is padded.
//
// Rows of a tile are episodes. Each has its own bar, hence its own tokens, so one product serves
// the episodes of one bar: the rows of A that belong to others are 0, and sums collect all of them.
// Episodes of one bar stand side by side; a run of them takes one turn. PARTS warps share 16 episodes,
// or one takes several of the tile's TILES blocks of 16.

// A operand of two neighbouring C tiles.
inline uint4 operand(const float4 c0, const float4 c1)
{
    return (uint4)(pack_bf16(c0.x, c0.y), pack_bf16(c0.z, c0.w), pack_bf16(c1.x, c1.y), pack_bf16(c1.z, c1.w));
}

// Input i of a query group, of the episode whose column is f: the portfolio floats of the mask's
// bits, then 1 for the bias, then 0.
inline float query_input(__local const float *f, const int mask, const int i)
{
    float x = 0.0f;
    int next = 0;
#pragma unroll N_PORTFOLIO
    for (int k = 0; k < N_PORTFOLIO; k++) {
        if (mask >> k & 1) {
            x = next == i ? f[k * ROW] : x;
            next++;
        }
    }
    return next == i ? 1.0f : x;
}

// A operand of a query group's inputs, two episodes eight apart: bf16 in columns 0 to 7, the rest
// that bf16 leaves in 8 to 15.
inline uint4 query_inputs(__local const float *f, const int mask)
{
    const int i = get_local_id(0) % 4 * 2;
    const float2 a = (float2)(query_input(f, mask, i), query_input(f, mask, i + 1));
    const float2 b = (float2)(query_input(f + 8, mask, i), query_input(f + 8, mask, i + 1));
    uint4 x;
    x.x = pack_bf16(a.x, a.y);
    x.y = pack_bf16(b.x, b.y);
    x.z = pack_bf16(a.x - low_bf16(x.x), a.y - high_bf16(x.x));
    x.w = pack_bf16(b.x - low_bf16(x.y), b.y - high_bf16(x.y));
    return x;
}

// Two neighbouring elements of each of two rows, as a C tile.
inline float4 pairs(__global const float *row0, __global const float *row1)
{
    return (float4)(*(__global const float2 *)row0, *(__global const float2 *)row1);
}

// Queries of group q (0 balance, 1 position, 2 calendar) and scenario s: C tiles of latents 0 to 7
// and 8 to 15.
inline void query_tiles(const Policy *p, const uint4 *inputs, __global const float *row0,
                        __global const float *row1, const int q, const int s, float4 *c0, float4 *c1)
{
    const int lane = get_local_id(0) % 32;
    *c0 = *c1 = (float4)(0.0f);
    if (q < 2) {
        // behind the plain weights, [2][SCENARIOS][2][32]: rounded, and what that leaves
        __global const uint4 *w =
            (__global const uint4 *)(p->query + QUERY_TENSOR_AT) + (q * SCENARIOS + s) * 64 + lane;
        const uint4 high = w[0];
        const uint4 low = w[32];
        mma_bf16(c0, inputs[q], high.xy);
        mma_bf16(c0, inputs[q], low.xy);
        mma_bf16(c1, inputs[q], high.zw);
        mma_bf16(c1, inputs[q], low.zw);
    } else {
        const int at = CALENDAR_AT + s * LATENT + lane % 4 * 2;
        *c0 = pairs(row0 + at, row1 + at);
#if LATENT > 8
        *c1 = pairs(row0 + at + 8, row1 + at + 8);
#endif
    }
}

// Adds what the retrieved skills shift the queries of scenario s by; slots of the lane's two episodes.
inline void shift_tiles(const Policy *p, const int slot0, const int slot1, const int s, float4 *c0, float4 *c1)
{
    if (slot0 < 0 && slot1 < 0) {
        return;
    }
    const float4 hit = (float4)((float2)(slot0 >= 0), (float2)(slot1 >= 0));
    __global const float *shift0 = p->shift + (long)max(slot0, 0) * TASK_ROW + s * LATENT;
    __global const float *shift1 = p->shift + (long)max(slot1, 0) * TASK_ROW + s * LATENT;
#pragma unroll 3
    for (int q = 0; q < 3; q++) {
        const int at = q * SCENARIOS * LATENT + get_local_id(0) % 4 * 2;
        c0[q] = fma(hit, pairs(shift0 + at, shift1 + at), c0[q]);
#if LATENT > 8
        c1[q] = fma(hit, pairs(shift0 + at + 8, shift1 + at + 8), c1[q]);
#endif
    }
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
    const float two = fmax(x, butterfly(x, 1u));
    return fmax(two, butterfly(two, 2u));
}

// 2^x of every component.
inline float4 exp2_tile(const float4 x)
{
    return (float4)(exp2_fast(x.x), exp2_fast(x.y), exp2_fast(x.z), exp2_fast(x.w));
}

// Scores of a row's tokens, C tiles of tokens 0 to 7 and 8 to 15, become exp2(score - best).
// Returns what both rows' attention is multiplied with: weight over the sum.
inline float2 share_tiles(float4 *s0, float4 *s1, const float2 weight)
{
    const int t = get_local_id(0) % 4 * 2;
    const float none = -INFINITY;
    if (HORIZON < 8) {
        *s0 = (float4)(t < HORIZON ? s0->x : none, t + 1 < HORIZON ? s0->y : none, t < HORIZON ? s0->z : none,
                       t + 1 < HORIZON ? s0->w : none);
    }
    *s1 = (float4)(t + 8 < HORIZON ? s1->x : none, t + 9 < HORIZON ? s1->y : none,
                   t + 8 < HORIZON ? s1->z : none, t + 9 < HORIZON ? s1->w : none);
    const float4 most = fmax(*s0, *s1);
    const float2 top = (float2)(top_of_row(fmax(most.x, most.y)), top_of_row(fmax(most.z, most.w)));
    *s0 = exp2_tile(*s0 - top.xxyy);
    *s1 = exp2_tile(*s1 - top.xxyy);
    const float4 all_ = *s0 + *s1;
    return (float2)(native_divide(weight.x, over_row(all_.x + all_.y)),
                    native_divide(weight.y, over_row(all_.z + all_.w)));
}

// Adds the attention of 16 episodes to scenario s to the sums of the first layer. tokens: of the
// warp's episodes, in bar runs whose first episodes are the bits of `runs`.
inline void add_scenario(const Policy *p, const uint4 *inputs, __local const int *place, const int t,
                         const uint runs, __global const float *row0, __global const float *row1,
                         const int slot0, const int slot1, const int s, float4 *sum)
{
    const int lane = get_local_id(0) % 32;
    const int row = lane / 4;
    const float scale = 1.44269504f / sqrt((float)LATENT); // scores in units of log 2
    __global const uint4 *tokens = (__global const uint4 *)(p->table + (long)t * BAR_ROW + TOKENS_AT) + s * 32 + lane;
    uint4 a[3];
    float4 c0[3], c1[3];
#pragma unroll 3
    for (int q = 0; q < 3; q++) {
        query_tiles(p, inputs, row0, row1, q, s, c0 + q, c1 + q);
    }
#if SLOTS > 0
    shift_tiles(p, slot0, slot1, s, c0, c1);
#endif
#pragma unroll 3
    for (int q = 0; q < 3; q++) {
        a[q] = operand(c0[q] * scale, c1[q] * scale);
        c0[q] = c1[q] = (float4)(0.0f);
    }
    uint left = runs;
    uint4 k = tokens[(long)place[0] * (BAR_ROW / 4)];
    while (left != 0) {
        const int e = 31 - clz(left & -left);
        left = left & (left - 1);
        const int end = left != 0 ? 31 - clz(left & -left) : 16;
        const uint4 next = tokens[(long)place[end & 15] * (BAR_ROW / 4)]; // on its way meanwhile
        const uint m0 = row >= e && row < end ? 0xffffffffu : 0u;
        const uint m1 = row + 8 >= e && row + 8 < end ? 0xffffffffu : 0u;
#pragma unroll 3
        for (int q = 0; q < 3; q++) {
            const uint4 mine = a[q] & (uint4)(m0, m1, m0, m1);
            mma_bf16(c0 + q, mine, k.xy);
#if HORIZON > 8
            mma_bf16(c1 + q, mine, k.zw);
#endif
        }
        k = next;
    }
    const float2 weight = (float2)(row0[SHARE_AT + s], row1[SHARE_AT + s]);
    float2 whole[3];
#pragma unroll 3
    for (int q = 0; q < 3; q++) {
        whole[q] = share_tiles(c0 + q, c1 + q, weight);
        a[q] = operand(c0[q], c1[q]);
        c0[q] = c1[q] = (float4)(0.0f);
    }
    left = runs;
    k = tokens[(long)place[0] * (BAR_ROW / 4)];
    while (left != 0) {
        const int e = 31 - clz(left & -left);
        left = left & (left - 1);
        const int end = left != 0 ? 31 - clz(left & -left) : 16;
        const uint4 next = tokens[(long)place[end & 15] * (BAR_ROW / 4)];
        const uint m0 = row >= e && row < end ? 0xffffffffu : 0u;
        const uint m1 = row + 8 >= e && row + 8 < end ? 0xffffffffu : 0u;
        const uint2 v0 = (uint2)(turn_8x8(k.x), turn_8x8(k.z));
#if LATENT > 8
        const uint2 v1 = (uint2)(turn_8x8(k.y), turn_8x8(k.w));
#endif
#pragma unroll 3
        for (int q = 0; q < 3; q++) {
            const uint4 mine = a[q] & (uint4)(m0, m1, m0, m1);
            mma_bf16(c0 + q, mine, v0);
#if LATENT > 8
            mma_bf16(c1 + q, mine, v1);
#endif
        }
        k = next;
    }
    // w1 is [SCENARIOS][3][HIDDEN1/16][32]
    __global const uint4 *w = (__global const uint4 *)p->w1 + s * 3 * (HIDDEN1 / 16) * 32 + lane;
#pragma unroll 3
    for (int q = 0; q < 3; q++) {
        const uint4 seen = operand(c0[q] * whole[q].xxyy, c1[q] * whole[q].xxyy);
#pragma unroll
        for (int n = 0; n < HIDDEN1 / 16; n++) {
            const uint4 both = w[(q * (HIDDEN1 / 16) + n) * 32];
            mma_bf16(sum + 2 * n, seen, both.xy);
            mma_bf16(sum + 2 * n + 1, seen, both.zw);
        }
    }
}

// This warp's part of the first layer's sums for episodes 16*m and on.
inline void encode_tile(const Policy *p, __local const int *place, __local const float *f, const int t,
                        __local const int *slot, const int m, const int part, float4 *sum)
{
    const int lane = get_local_id(0) % 32;
    const int e = 16 * m + lane / 4;
    __global const float4 *bias = (__global const float4 *)p->b1 + lane % 4;
#pragma unroll
    for (int n = 0; n < HIDDEN1 / 16; n++) {
        const float4 b = part == 0 ? bias[4 * n] : (float4)(0.0f);
        sum[2 * n] = b.xyxy;
        sum[2 * n + 1] = b.zwzw;
    }
    uint runs = 1u; // bit i: another bar than that of the episode before
    for (int i = 1; i < 16; i++) {
        runs |= place[16 * m + i] != place[16 * m + i - 1] ? 1u << i : 0u;
    }
    __global const float *row0 = p->table + (long)(place[e] + t) * BAR_ROW;
    __global const float *row1 = p->table + (long)(place[e + 8] + t) * BAR_ROW;
    const uint4 inputs[2] = {query_inputs(f + e, BALANCE_MASK), query_inputs(f + e, POSITION_MASK)};
#pragma unroll 1
    for (int s = part; s < SCENARIOS; s += PARTS) {
        add_scenario(p, inputs, place + 16 * m, t, runs, row0, row1, slot[e], slot[e + 8], s, sum);
    }
}

// As in scenario_group.cl, without a history. A warp takes whole blocks of 16 episodes, or shares
// one with others; these add up their sums in h and room, the last part first.
inline void encode(const Policy *p, __local const int *place, __local const float *f, const int count,
                   const int t, __global float *past, __local int *slot, __local int *unsure,
                   __local hidden_t *h, __local float *room)
{
    const int lane = get_local_id(0) % 32;
    const int warp = get_local_id(0) / 32;
    search_task(p, place, f, t, slot, unsure, (__local float *)h, room);
    float4 sum[HIDDEN1 / 8];
#if WARPS >= 2 * TILES
    const int m = warp % TILES;
    const int part = warp / TILES; // warps from PARTS on are surplus
    if (part < PARTS) {
        encode_tile(p, place, f, t, slot, m, part, sum);
    }
    __local float4 *first = (__local float4 *)h + m * H_STEPS * 32 + lane;
    __local float4 *second = (__local float4 *)room + m * H_STEPS * 32 + lane;
    for (int turn = PARTS - 1; turn >= 0; turn--) {
        if (part == turn) {
#pragma unroll
            for (int n = 0; n < HIDDEN1 / 16; n++) {
                if (turn < PARTS - 1) {
                    sum[2 * n] = sum[2 * n] + first[n * 32];
                    sum[2 * n + 1] = sum[2 * n + 1] + second[n * 32];
                }
                if (turn > 0) {
                    first[n * 32] = sum[2 * n];
                    second[n * 32] = sum[2 * n + 1];
                } else { // in the place of what this lane has just read
                    h[(m * H_STEPS + n) * 32 + lane] = hidden_of(sum[2 * n], sum[2 * n + 1]);
                }
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
#else
    for (int m = warp; m < TILES; m += WARPS) {
        encode_tile(p, place, f, t, slot, m, 0, sum);
#pragma unroll
        for (int n = 0; n < HIDDEN1 / 16; n++) {
            h[(m * H_STEPS + n) * 32 + lane] = hidden_of(sum[2 * n], sum[2 * n + 1]);
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
}
