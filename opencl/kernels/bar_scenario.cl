// The scenario network's parts that depend on the bar alone, behind the forecaster's layers: step
// context, its skills, tokens, calendar queries, scenario weights. Rows of a table as in scenario_lanes.cl; bar 0 of a
// launch is row `first_row` of all tables, bar `first` of the states or of the forecasts. Global sizes
// name the fastest dimension first.

// Scenario weights: a table's logits become their softmax; global size (bars).
__kernel void bar_share(__global float *restrict table, // [...][BAR_ROW]
                        const int first_row)
{
    __global float *share = table + (first_row + (long)get_global_id(0)) * BAR_ROW + SHARE_AT;
    float p[SCENARIOS];
    float top = share[0];
    for (int s = 1; s < SCENARIOS; s++) {
        top = max(top, share[s]);
    }
    float den = 0.0f;
    for (int s = 0; s < SCENARIOS; s++) {
        p[s] = exp(share[s] - top);
        den = den + p[s];
    }
    for (int s = 0; s < SCENARIOS; s++) {
        share[s] = p[s] / den;
    }
}

// Calendar queries into a table; column holds the N_CALENDAR places in a bar's state they read.
// Global size (SCENARIOS*LATENT, bars).
__kernel void bar_calendar(__global const float *restrict x,      // [...][N_BAR_PART]
                           __global const int *restrict column,   // [N_CALENDAR]
                           __global const float *restrict weight, // [N_CALENDAR][SCENARIOS*LATENT]
                           __global const float *restrict bias,   // [SCENARIOS*LATENT]
                           __global float *restrict table,        // [...][BAR_ROW]
                           const int first, const int first_row)
{
    const int e = get_global_id(0);
    const long bar = first + get_global_id(1);
    const long row = first_row + get_global_id(1);
    float sum = bias[e];
    for (int k = 0; k < N_CALENDAR; k++) {
        const float w = weight[k * SCENARIOS * LATENT + e];
        sum = fma(w, x[bar * N_BAR_PART + column[k]], sum);
    }
    table[row * BAR_ROW + CALENDAR_AT + e] = sum;
}

// Sum of the components.
inline float sum_8(const float8 x)
{
    const float4 y = x.lo + x.hi;
    const float2 z = y.lo + y.hi;
    return z.lo + z.hi;
}

// Tokens: LayerNorm over LATENT of a table's sums Wz z + bz + Wu logU + bu, the correction added where
// the step bank found one, plus the position. Global size (SCENARIOS*HORIZON, bars).
__kernel __attribute__((vec_type_hint(float8))) void bar_tokens(
    __global const float *restrict norm,     // [2][LATENT]: weight, bias
    __global const float *restrict position, // [HORIZON][LATENT]
    __global const char *restrict found,     // [...], as rows of the table, or null
    __global const float *restrict shift,    // [slots][SCENARIOS*HORIZON*LATENT]
    __global float *restrict table,          // [...][BAR_ROW]
    const int first_row, const float eps)
{
    const int token = get_global_id(0);
    const long bar = first_row + get_global_id(1);
    const int eights = LATENT / 8;
    __global float *row = table + bar * BAR_ROW + token * LATENT;
    __global const float *place = position + token % HORIZON * LATENT;
    const int slot = found != 0 ? found[bar] : MISS;
    if (slot >= 0) {
        __global const float *d = shift + ((long)slot * SCENARIOS * HORIZON + token) * LATENT;
        for (int l = 0; l < LATENT; l++) {
            row[l] = row[l] + d[l];
        }
    }
    float8 sums = (float8)(0.0f);
    float rest = 0.0f;
    for (int i = 0; i < eights; i++) {
        sums = sums + vload8(i, row);
    }
    for (int l = 8 * eights; l < LATENT; l++) {
        rest = rest + row[l];
    }
    const float mean = (sum_8(sums) + rest) / (float)LATENT;
    sums = (float8)(0.0f);
    rest = 0.0f;
    for (int i = 0; i < eights; i++) {
        const float8 x = vload8(i, row) - mean;
        sums = fma(x, x, sums);
    }
    for (int l = 8 * eights; l < LATENT; l++) {
        rest = fma(row[l] - mean, row[l] - mean, rest);
    }
    const float deviation = sqrt((sum_8(sums) + rest) / (float)LATENT + eps);
    for (int i = 0; i < eights; i++) {
        const float8 x = (vload8(i, row) - mean) / deviation;
        vstore8(fma(x, vload8(i, norm), vload8(i, norm + LATENT)) + vload8(i, place), i, row);
    }
    for (int l = 8 * eights; l < LATENT; l++) {
        row[l] = fma((row[l] - mean) / deviation, norm[l], norm[LATENT + l]) + place[l];
    }
}

#if SLOTS > 0
// The step bank's search for each bar; a work-group of 64 items a bar, item i holds lane i of all
// sums. source is what is searched by: step contexts in a table, or states. Global size (64*bars).
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void bar_search(
    __global const float *restrict source,   // [...][stride]
    __global const float *restrict keys,     // [SLOTS][padded], live slots first
    __global const float *restrict center,   // [padded]
    __global const float4 *restrict entries, // [SLOTS]: norm, bonus, threshold, slot (negative: no more)
    __global const uchar *restrict disagree, // [SLOTS][SLOTS]
    __global char *restrict found,           // [...], as rows of a table
    const int first, const int first_row, const int stride, const int dim, const int padded)
{
    __local float part[(SLOTS + 1) * 65]; // a row a sum; entry SLOTS: the query's square
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
    for (int k = i; k < full + i; k += 64) {
        const float x = mine[k] - center[k];
        square = square + x * x;
    }
    part[SLOTS * 65 + i] = square + last * last;
    for (int n = 0; n < live; n += 4) { // keys beyond live exist and are not used
        __global const float *key = keys + (long)n * padded;
        float s0 = 0.0f;
        float s1 = 0.0f;
        float s2 = 0.0f;
        float s3 = 0.0f;
        for (int k = i; k < full + i; k += 64) {
            const float x = mine[k] - center[k];
            s0 = s0 + x * key[k];
            s1 = s1 + x * key[k + padded];
            s2 = s2 + x * key[k + 2 * padded];
            s3 = s3 + x * key[k + 3 * padded];
        }
        if (full < padded) {
            key = key + full + i;
            s0 = s0 + last * key[0];
            s1 = s1 + last * key[padded];
            s2 = s2 + last * key[2 * padded];
            s3 = s3 + last * key[3 * padded];
        }
        part[n * 65 + i] = s0;
        part[(n + 1) * 65 + i] = s1;
        part[(n + 2) * 65 + i] = s2;
        part[(n + 3) * 65 + i] = s3;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int n = i; n <= SLOTS; n += 64) {
        if (n < live || n == SLOTS) {
            total[n] = lanes_total(part + n * 65);
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
#endif
