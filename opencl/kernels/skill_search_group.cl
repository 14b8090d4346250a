// Ordered sums of many queries and keys on GPUs, in which TEAMS of 64 items, one a lane, share a
// group. A team takes four queries and SLOT_TILE slots at a time, so that an item uses every key
// element it loads four times. The teams keep in step: what one has loaded the others find in the
// cache.

#define SUMS (SLOT_TILE + 1) // of a query: its products with a tile's keys, its square

// total [4][SUMS] of queries first to first + 3 of h [count][stride], those beyond the end like the
// last; center [dim]; keys [dim/64][SLOT_TILE][64], rounded up. The sums go through part, SUMS rows of
// PART_ROW, one query at a time: one item adds the lanes of one sum. Begins with what it needs, ends
// behind a barrier; every item of the group must call it.
inline void team_sums(__global const float *h, const int first, const int count, const int stride,
                      const int dim, __global const float *center, __global const float *keys,
                      __local float *part, __local float *total)
{
    const int i = get_local_id(0) % 64;
    __global const float *h0 = h + (long)min(first, count - 1) * stride;
    __global const float *h1 = h + (long)min(first + 1, count - 1) * stride;
    __global const float *h2 = h + (long)min(first + 2, count - 1) * stride;
    __global const float *h3 = h + (long)min(first + 3, count - 1) * stride;
    __global const float *key = keys + i;
    float4 sum[SUMS]; // products with the keys, then the squares
#pragma unroll SUMS
    for (int s = 0; s < SUMS; s++) {
        sum[s] = (float4)(0.0f);
    }
    for (int d = i; d < dim + i; d += 64) { // as many rounds for every item
        float4 x = (float4)(0.0f);
        if (d < dim) {
            x = (float4)(h0[d], h1[d], h2[d], h3[d]) - center[d];
        }
        sum[SLOT_TILE] = sum[SLOT_TILE] + x * x;
#pragma unroll SUMS
        for (int s = 0; s < SLOT_TILE; s++) {
            sum[s] = sum[s] + x * key[64 * s];
        }
        key = key + 64 * SLOT_TILE;
        if (TEAMS > 1) {
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    }
#pragma unroll 4
    for (int q = 0; q < 4; q++) {
#pragma unroll SUMS
        for (int s = 0; s < SUMS; s++) {
            part[s * PART_ROW + i] = q == 0 ? sum[s].x : q == 1 ? sum[s].y : q == 2 ? sum[s].z : sum[s].w;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int s = i; s < SUMS; s += 64) {
            total[q * SUMS + s] = lanes_total(part + s * PART_ROW);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
