// The step bank's search for GPUs: teams of 64 items, as skill_search_group.cl says, four bars each.

// source is what is searched by: step contexts in a table, or states; groups of 64*TEAMS items.
__kernel __attribute__((reqd_work_group_size(64 * TEAMS, 1, 1))) void bar_search(
    __global const float *restrict source,   // [...][stride]
    __global const float *restrict keys,     // [SLOTS/SLOT_TILE] blocks of team_sums, live slots first
    __global const float *restrict center,   // [dim or more]
    __global const float4 *restrict entries, // [SLOTS]: norm, bonus, threshold, slot (negative: no more)
    __global const uchar *restrict disagree, // [SLOTS][SLOTS]
    __global char *restrict found,           // [...], as rows of a table
    const int first, const int first_row, const int stride, const int dim, const int bars)
{
    __local float part[TEAMS * SUMS * PART_ROW] __attribute__((aligned(16)));
    __local float total[TEAMS * 4 * SUMS];
    const int i = get_local_id(0) % 64;
    const int team = get_local_id(0) / 64;
    const int mine = (get_group_id(0) * TEAMS + team) * 4;
    int live = 0;
    while (live < SLOTS && entries[live].w >= 0.0f) {
        live++;
    }
    Best best = best_none(); // items 0..3 of a team own a bar each
    for (int tile = 0; tile < live; tile += SLOT_TILE) {
        team_sums(source + (long)first * stride, mine, bars, stride, dim, center, keys,
                  part + team * SUMS * PART_ROW, total + team * 4 * SUMS);
        keys = keys + (dim + 63) / 64 * SLOT_TILE * 64;
        for (int n = tile; i < 4 && n < live && n < tile + SLOT_TILE; n++) {
            const float4 entry = entries[n];
            __local const float *sum = total + (team * 4 + i) * SUMS;
            const float score =
                score_finalize(sum[n - tile], sum[SLOT_TILE], entry.x, 1, entry.y, entry.z);
            best = arg_max_partial(best, score, (int)entry.w);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (i < 4 && mine + i < bars) {
        found[first_row + mine + i] = (char)arg_max_slot(best, disagree, SLOTS);
    }
}
