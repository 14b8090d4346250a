// The step bank's search for GPUs: a work-group of 64 items a bar, item i holds lane i of all sums.

// source is what is searched by: step contexts in a table, or states; global size (64*bars).
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void bar_search(
    __global const float *restrict source,   // [...][stride]
    __global const float *restrict keys,     // [SLOTS][padded], live slots first
    __global const float *restrict center,   // [padded]
    __global const float4 *restrict entries, // [SLOTS]: norm, bonus, threshold, slot (negative: no more)
    __global const uchar *restrict disagree, // [SLOTS][SLOTS]
    __global char *restrict found,           // [...], as rows of a table
    const int first, const int first_row, const int stride, const int dim, const int padded)
{
    __local float part[(SLOTS + 1) * 68] __attribute__((aligned(16))); // a row a sum; SLOTS: the square
    __local float total[SLOTS + 1];
    const int i = get_local_id(0);
    const int bar = get_group_id(0);
    __global const float *mine = source + (long)(first + bar) * stride;
    int live = 0;
    while (live < SLOTS && entries[live].w >= 0.0f) {
        live++;
    }
    const int full = dim / 64 * 64;
    const bool more = full + i < dim;
    const float last = more ? mine[full + i] - center[full + i] : 0.0f;
    float square = 0.0f;
    for (int k = 0; k < full; k += 64) {
        const float x = mine[k + i] - center[k + i];
        square = square + x * x;
    }
    part[SLOTS * 68 + i] = square + last * last;
    for (int n = 0; n < live; n += 4) { // keys beyond live exist and are not used
        __global const float *key = keys + n * padded + i;
        float s0 = 0.0f;
        float s1 = 0.0f;
        float s2 = 0.0f;
        float s3 = 0.0f;
        for (int k = 0; k < full; k += 64) {
            const float x = mine[k + i] - center[k + i];
            s0 = s0 + x * key[k];
            s1 = s1 + x * key[k + padded];
            s2 = s2 + x * key[k + 2 * padded];
            s3 = s3 + x * key[k + 3 * padded];
        }
        if (full < padded) {
            key = key + full;
            s0 = s0 + last * key[0];
            s1 = s1 + last * key[padded];
            s2 = s2 + last * key[2 * padded];
            s3 = s3 + last * key[3 * padded];
        }
        part[n * 68 + i] = s0;
        part[(n + 1) * 68 + i] = s1;
        part[(n + 2) * 68 + i] = s2;
        part[(n + 3) * 68 + i] = s3;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int n = i; n <= SLOTS; n += 64) {
        if (n < live || n == SLOTS) {
            total[n] = lanes_total(part + n * 68);
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (i == 0) {
        Best best = best_none();
        for (int n = 0; n < live; n++) {
            const float4 entry = entries[n];
            const float score = score_finalize(total[n], total[SLOTS], entry.x, 1, entry.y, entry.z);
            best = arg_max_partial(best, score, (int)entry.w);
        }
        found[first_row + bar] = (char)arg_max_slot(best, disagree, SLOTS);
    }
}
