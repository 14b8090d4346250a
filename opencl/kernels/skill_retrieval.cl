// Retrieval of many queries against M banks, and GatherCorrection. A group of 64 items searches for
// QUERIES queries together, SLOT_TILE slots at a time: every element that an item loads is used
// QUERIES or SLOT_TILE times. Twin of backtest/agent/bank/retrieval.py.

// h [M][queries][key_dim], raw; center [M][key_dim]; keys [M][slots][key_dim]; norms, eligible,
// bonus [M][slots]; disagree [M][slots][slots]; threshold [M]; found [M][queries].
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void bank_retrieve(
    __global const float *center, __global const float *keys, __global const float *norms,
    __global const uchar *eligible, __global const float *bonus, __global const uchar *disagree,
    __global const float *threshold, __global const float *h, const int slots, const int key_dim,
    const int queries, __global int *found)
{
    __local float part[(QUERIES * SLOT_TILE + QUERIES) * PART_ROW];
    __local float score[QUERIES * SLOT_TILE + QUERIES];
    const int i = get_local_id(0);
    const int tiles = (queries + QUERIES - 1) / QUERIES;
    const long m = get_group_id(0) / tiles;
    const int first = get_group_id(0) % tiles * QUERIES;
    // Items 0..QUERIES-1 own a query each; surplus queries and slots shadow the last one.
    Best best = best_none();
    for (int tile = 0; tile < slots; tile += SLOT_TILE) {
        float dots[QUERIES * SLOT_TILE];
        float square[QUERIES];
        for (int q = 0; q < QUERIES; q++) {
            square[q] = 0.0f;
        }
        for (int k = 0; k < QUERIES * SLOT_TILE; k++) {
            dots[k] = 0.0f;
        }
        for (int d = i; d < key_dim; d += 64) {
            float x[QUERIES];
            for (int q = 0; q < QUERIES; q++) {
                const long row = m * queries + min(first + q, queries - 1);
                x[q] = h[row * key_dim + d] - center[m * key_dim + d];
                square[q] = square[q] + x[q] * x[q];
            }
            for (int s = 0; s < SLOT_TILE; s++) {
                const float key = keys[(m * slots + min(tile + s, slots - 1)) * key_dim + d];
                for (int q = 0; q < QUERIES; q++) {
                    dots[q * SLOT_TILE + s] = dots[q * SLOT_TILE + s] + x[q] * key;
                }
            }
        }
        for (int k = 0; k < QUERIES * SLOT_TILE; k++) {
            part[k * PART_ROW + i] = dots[k];
        }
        for (int q = 0; q < QUERIES; q++) {
            part[(QUERIES * SLOT_TILE + q) * PART_ROW + i] = square[q];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int r = i; r < QUERIES * SLOT_TILE + QUERIES; r += 64) {
            score[r] = lanes_total(part + r * PART_ROW);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (i < QUERIES) {
            for (int s = 0; s < SLOT_TILE && tile + s < slots; s++) {
                const long slot = m * slots + tile + s;
                const float mine = score_finalize(
                    score[i * SLOT_TILE + s], score[QUERIES * SLOT_TILE + i], norms[slot],
                    eligible[slot], bonus[slot], threshold[m]);
                best = arg_max_partial(best, mine, tile + s);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (i < QUERIES && first + i < queries) {
        found[m * queries + first + i] = arg_max_slot(best, disagree + m * slots * slots, slots);
    }
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
