// Retrieval of many queries against M banks, and GatherCorrection. Twin of
// backtest/agent/bank/retrieval.py. Two kernels find the same: one for GPUs, one for CPUs.

// For GPUs: four queries a group, as skill_search_group.cl says.
// h [M][queries][key_dim], raw; center [M][key_dim]; keys [M][slots/SLOT_TILE] of its blocks, rounded
// up; norms, eligible, bonus [M][slots]; disagree [M][slots][slots]; threshold [M]; found [M][queries].
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void bank_retrieve_group(
    __global const float *restrict center, __global const float *restrict keys,
    __global const float *restrict norms, __global const uchar *restrict eligible,
    __global const float *restrict bonus, __global const uchar *restrict disagree,
    __global const float *restrict threshold, __global const float *restrict h, const int slots,
    const int key_dim, const int queries, __global int *restrict found)
{
    __local float part[4 * SUMS * PART_ROW] __attribute__((aligned(16)));
    __local float total[4 * SUMS];
    __local float score[4 * SUMS];
    const int i = get_local_id(0);
    const int groups = (queries + 3) / 4;
    const long m = get_group_id(0) / groups;
    const int first = get_group_id(0) % groups * 4;
    const long block = (long)((key_dim + 63) / 64) * SLOT_TILE * 64;
    keys += m * ((slots + SLOT_TILE - 1) / SLOT_TILE) * block;
    Best best = best_none(); // items 0..3 own a query each
    for (int tile = 0; tile < slots; tile += SLOT_TILE, keys += block) {
        four_sums(h + m * queries * key_dim, first, queries, key_dim, key_dim, center + m * key_dim, keys,
                  part, total);
        for (int r = i; r < 4 * SUMS; r += 64) { // of the squares it means nothing
            const long slot = m * slots + min(tile + r % SUMS, slots - 1);
            score[r] = score_finalize(total[r], total[r / SUMS * SUMS + SLOT_TILE], norms[slot],
                                      eligible[slot], bonus[slot], threshold[m]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int s = 0; i < 4 && s < SLOT_TILE && tile + s < slots; s++) {
            best = arg_max_partial(best, score[i * SUMS + s], tile + s);
        }
    }
    if (i < 4 && first + i < queries) {
        found[m * queries + first + i] = arg_max_slot(best, disagree + m * slots * slots, slots);
    }
}

// For CPUs: one item a query, four slots at a time, 16 lanes of each in a vector. Arguments as above,
// but keys are [M][slots][key_dim].
__kernel __attribute__((vec_type_hint(float16))) void bank_retrieve_item(
    __global const float *center, __global const float *keys, __global const float *norms,
    __global const uchar *eligible, __global const float *bonus, __global const uchar *disagree,
    __global const float *threshold, __global const float *h, const int slots, const int key_dim,
    const int queries, __global int *found)
{
    const long row = get_global_id(0);
    const long m = row / queries;
    __global const float *my_h = h + row * key_dim;
    __global const float *my_center = center + m * key_dim;
    Best best = best_none();
    for (int tile = 0; tile < slots; tile += 4) {
        __global const float *key[4];
        for (int s = 0; s < 4; s++) {
            key[s] = keys + (m * slots + min(tile + s, slots - 1)) * key_dim;
        }
        float16 lane[5][4]; // four dot products and the square of the query
        for (int part = 0; part < 4; part++) {
            float16 s0 = (float16)(0.0f);
            float16 s1 = s0, s2 = s0, s3 = s0, s4 = s0;
            for (int k = 16 * part; k < key_dim; k += 64) {
                const float16 x = load_16(my_h, k, key_dim) - load_16(my_center, k, key_dim);
                s0 = s0 + x * load_16(key[0], k, key_dim);
                s1 = s1 + x * load_16(key[1], k, key_dim);
                s2 = s2 + x * load_16(key[2], k, key_dim);
                s3 = s3 + x * load_16(key[3], k, key_dim);
                s4 = s4 + x * x;
            }
            lane[0][part] = s0;
            lane[1][part] = s1;
            lane[2][part] = s2;
            lane[3][part] = s3;
            lane[4][part] = s4;
        }
        float sum[5];
        for (int s = 0; s < 5; s++) {
            const Lanes all = {lane[s][0], lane[s][1], lane[s][2], lane[s][3]};
            sum[s] = lanes_sum(all);
        }
        Best some = best_none();
        for (int s = 0; s < 4 && tile + s < slots; s++) {
            const long slot = m * slots + tile + s;
            const float mine = score_finalize(sum[s], sum[4], norms[slot], eligible[slot],
                                              bonus[slot], threshold[m]);
            some = arg_max_partial(some, mine, tile + s);
        }
        best = arg_max_merge(best, some);
    }
    found[row] = arg_max_slot(best, disagree + m * slots * slots, slots);
}

// GatherCorrection: element d of a hidden state with the correction of its slot. A select: without
// a slot it comes back bit for bit.
inline float gather_correction(const float h, __global const float *shift, const int slot,
                               const int dim, const int d)
{
    return slot >= 0 ? h + shift[(long)max(slot, 0) * dim + d] : h;
}

// h, out [M][queries][dim]; shift [M][slots][dim]; found [M][queries]. One item an element.
__kernel void bank_gather(__global const float *h, __global const float *shift,
                          __global const int *found, const int slots, const int dim,
                          const int queries, __global float *out)
{
    const int d = get_global_id(0);
    const long row = get_global_id(1);
    const long bank = row / queries;
    out[row * dim + d] =
        gather_correction(h[row * dim + d], shift + bank * slots * dim, found[row], dim, d);
}
