// The step bank's search for CPUs: one work-item a bar, the lanes of a sum in vectors.

// Ordered sum of x*key; as score_slots, the query in the item's own memory.
inline float score_own(const float *x, __global const float *key, const int padded)
{
    Lanes s = lanes_zero();
    for (int k = 0; k < padded; k += 64) {
        s.a = s.a + vload16(0, x + k) * vload16(0, key + k);
        s.b = s.b + vload16(1, x + k) * vload16(1, key + k);
        s.c = s.c + vload16(2, x + k) * vload16(2, key + k);
        s.d = s.d + vload16(3, x + k) * vload16(3, key + k);
    }
    return lanes_sum(s);
}

// source is what is searched by: step contexts in a table, or states; global size (bars).
__kernel __attribute__((vec_type_hint(float16))) void bar_search(
    __global const float *restrict source,   // [...][stride]
    __global const float *restrict keys,     // [SLOTS][padded], live slots first
    __global const float *restrict center,   // [padded]
    __global const float4 *restrict entries, // [SLOTS]: norm, bonus, threshold, slot (negative: no more)
    __global const uchar *restrict disagree, // [SLOTS][SLOTS]
    __global char *restrict found,           // [...], as rows of a table
    const int first, const int first_row, const int stride, const int dim, const int padded)
{
    const int bar = get_global_id(0);
    __global const float *mine = source + (long)(first + bar) * stride;
    float x[SEARCH_ROW];
    for (int k = 0; k < dim; k++) {
        x[k] = mine[k] - center[k];
    }
    for (int k = dim; k < padded; k++) {
        x[k] = 0.0f;
    }
    Lanes s = lanes_zero();
    for (int k = 0; k < padded; k += 64) {
        s.a = s.a + vload16(0, x + k) * vload16(0, x + k);
        s.b = s.b + vload16(1, x + k) * vload16(1, x + k);
        s.c = s.c + vload16(2, x + k) * vload16(2, x + k);
        s.d = s.d + vload16(3, x + k) * vload16(3, x + k);
    }
    const float square = lanes_sum(s);
    Best best = best_none();
    for (int n = 0; n < SLOTS && entries[n].w >= 0.0f; n++) {
        const float4 entry = entries[n];
        const float dot_ = score_own(x, keys + (long)n * padded, padded);
        const float score = score_finalize(dot_, square, entry.x, 1, entry.y, entry.z);
        best = arg_max_partial(best, score, (int)entry.w);
    }
    found[first_row + bar] = (char)arg_max_slot(best, disagree, SLOTS);
}
