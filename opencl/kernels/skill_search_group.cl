// Ordered sums of many queries and keys on GPUs. A group of 64 items, one a lane, takes four queries
// and SLOT_TILE slots at a time, so that an item uses every key element it loads four times. A query
// has SUMS: its products with a tile's keys, then its square.

// total [4][SUMS] of queries first to first + 3 of h [count][stride], those beyond the end like the
// last; center [dim]; keys [dim/64][SLOT_TILE][64], rounded up. One item adds the lanes of one sum in
// part, 4*SUMS rows of PART_ROW. Ends behind a barrier; every item of the group must call it.
inline void four_sums(__global const float *h, const int first, const int count, const int stride,
                      const int dim, __global const float *center, __global const float *keys,
                      __local float *part, __local float *total)
{
    const int i = get_local_id(0);
    __global const float *h0 = h + (long)first * stride;
    __global const float *h1 = h + (long)min(first + 1, count - 1) * stride;
    __global const float *h2 = h + (long)min(first + 2, count - 1) * stride;
    __global const float *h3 = h + (long)min(first + 3, count - 1) * stride;
    float4 sum[SUMS]; // products with the keys, then the squares
#pragma unroll SUMS
    for (int s = 0; s < SUMS; s++) {
        sum[s] = (float4)(0.0f);
    }
    __global const float *key = keys + i;
    for (int d = i; d < dim; d += 64, key += 64 * SLOT_TILE) {
        const float4 x = (float4)(h0[d], h1[d], h2[d], h3[d]) - center[d];
        sum[SLOT_TILE] = sum[SLOT_TILE] + x * x;
#pragma unroll SUMS
        for (int s = 0; s < SLOT_TILE; s++) {
            sum[s] = sum[s] + x * key[64 * s];
        }
    }
#pragma unroll SUMS
    for (int s = 0; s < SUMS; s++) {
        __local float *to = part + s * PART_ROW + i;
        to[0] = sum[s].x;
        to[SUMS * PART_ROW] = sum[s].y;
        to[2 * SUMS * PART_ROW] = sum[s].z;
        to[3 * SUMS * PART_ROW] = sum[s].w;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int r = i; r < 4 * SUMS; r += 64) {
        total[r] = lanes_total(part + r * PART_ROW);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}
