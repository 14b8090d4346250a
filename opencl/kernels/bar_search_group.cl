// The step bank's search for GPUs: four bars a group, as skill_search_group.cl says.

// source is what is searched by: step contexts in a table, or states; groups of 64 items.
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void bar_search(
    __global const float *restrict source,   // [...][stride]
    __global const float *restrict keys,     // [SLOTS/SLOT_TILE] blocks of four_sums, live slots first
    __global const float *restrict center,   // [dim or more]
    __global const float4 *restrict entries, // [SLOTS]: norm, bonus, threshold, slot (negative: no more)
    __global const uchar *restrict disagree, // [SLOTS][SLOTS]
    __global char *restrict found,           // [...], as rows of a table
    const int first, const int first_row, const int stride, const int dim, const int bars)
{
    __local float part[4 * SUMS * PART_ROW] __attribute__((aligned(16)));
    __local float total[4 * SUMS];
    __local float score[4 * SUMS];
    const int i = get_local_id(0);
    const int mine = get_group_id(0) * 4;
    int live = 0;
    while (live < SLOTS && entries[live].w >= 0.0f) {
        live++;
    }
    Best best = best_none(); // items 0..3 own a bar each
    for (int tile = 0; tile < live; tile += SLOT_TILE) {
        four_sums(source + (long)first * stride, mine, bars, stride, dim, center, keys, part, total);
        keys = keys + (dim + 63) / 64 * SLOT_TILE * 64;
        for (int r = i; r < 4 * SUMS; r += 64) { // of the squares it means nothing
            const float4 entry = entries[min(tile + r % SUMS, live - 1)];
            score[r] = score_finalize(total[r], total[r / SUMS * SUMS + SLOT_TILE], entry.x, 1, entry.y,
                                      entry.z);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int n = tile; i < 4 && n < live && n < tile + SLOT_TILE; n++) {
            best = arg_max_partial(best, score[i * SUMS + n - tile], (int)entries[n].w);
        }
    }
    if (i < 4 && mine + i < bars) {
        found[first_row + mine + i] = (char)arg_max_slot(best, disagree, SLOTS);
    }
}
