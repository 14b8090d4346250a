// Tokens of the scenario network for CPUs, in the place of a table's sums.

// Sum of the components.
inline float sum_8(const float8 x)
{
    const float4 y = x.lo + x.hi;
    const float2 z = y.lo + y.hi;
    return z.lo + z.hi;
}

// Tokens: LayerNorm over LATENT of a table's sums Wz z + bz + Wu logU + bu, the correction added where
// the step bank found one, plus the position. Global size (SCENARIOS*HORIZON, bars or more).
__kernel __attribute__((vec_type_hint(float8))) void bar_tokens(
    __global const float *restrict norm,     // [2][LATENT]: weight, bias
    __global const float *restrict position, // [HORIZON][LATENT]
    __global const char *restrict found,     // [...], as rows of the table, or null
    __global const float *restrict shift,    // [slots][SCENARIOS*HORIZON*LATENT]
    __global float *restrict table,          // [...][BAR_ROW]
    const int first_row, const int bars, const float eps)
{
    if (get_global_id(1) >= bars) {
        return;
    }
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
    const float scale = 1.0f / sqrt((sum_8(sums) + rest) / (float)LATENT + eps);
    for (int i = 0; i < eights; i++) {
        const float8 x = (vload8(i, row) - mean) * scale;
        vstore8(fma(x, vload8(i, norm), vload8(i, norm + LATENT)) + vload8(i, place), i, row);
    }
    for (int l = 8 * eights; l < LATENT; l++) {
        row[l] = fma((row[l] - mean) * scale, norm[l], norm[LATENT + l]) + place[l];
    }
}
