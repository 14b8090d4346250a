// Tokens of the scenario network for GPUs, from the forecaster's latents in one go.

// Tensor cores read tokens as bf16, padded to 16 tokens of 16 latents (scenario_tensor.cl): then a
// scenario has TOKEN_PLACES 16, else HORIZON.

// Two floats as bf16, rounded to nearest even, `low` in the low half.
inline uint round_pair(const float low, const float high)
{
    const uint2 bits = (uint2)(as_uint(low), as_uint(high));
    const uint2 rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return rounded.x | rounded.y << 16;
}

// Token h of a scenario, as far as its LATENT go: words 2*(h/8) and on of lanes 4*(h % 8) + t hold
// latents 2*t, 2*t + 1 and 2*t + 8, 2*t + 9.
inline void store_operand(__global uint *scenario, const int h, const float *token)
{
#pragma unroll 4
    for (int t = 0; t < 4; t++) {
        const uint low = 2 * t < LATENT ? round_pair(token[2 * t], token[2 * t + 1]) : 0u;
        const uint high = 2 * t + 8 < LATENT ? round_pair(token[2 * t + 8], token[2 * t + 9]) : 0u;
        *(__global uint2 *)(scenario + (h % 8 * 4 + t) * 4 + h / 8 * 2) = (uint2)(low, high);
    }
}

// LayerNorm over LATENT of Wz z + bz + Wu logU + bu, which is linear in the latent z, the correction
// added where the step bank found one, plus the position. An item makes one token: global size
// (SCENARIOS*TOKEN_PLACES*bars or more).
__kernel void bar_tokens(__global const float *restrict latent,   // [...][SCENARIOS][HORIZON][LATENT]
                         __global const float *restrict weight,   // [LATENT][WEIGHT_ROW]
                         __global const float *restrict bias,     // [WEIGHT_ROW]
                         __global const float *restrict norm,     // [2][LATENT]: weight, bias
                         __global const float *restrict position, // [HORIZON][LATENT]
                         __global const char *restrict found,     // [...], as rows of the table, or null
                         __global const float *restrict shift,    // [slots][SCENARIOS*HORIZON*LATENT]
                         __global float *restrict table,          // [...][BAR_ROW]
                         const int first, const int first_row, const int bars, const float eps)
{
    const int bar = get_global_id(0) / (SCENARIOS * TOKEN_PLACES);
    const int s = get_global_id(0) / TOKEN_PLACES % SCENARIOS;
    const int h = get_global_id(0) % TOKEN_PLACES;
    if (bar >= bars) {
        return;
    }
    __global float *row = table + (long)(first_row + bar) * BAR_ROW;
    float token[16 > LATENT ? 16 : LATENT]; // padded for store_operand
    if (h < HORIZON) {
        const int at = (s * HORIZON + h) * LATENT;
        __global const float *z = latent + (long)(first + bar) * (SCENARIOS * HORIZON * LATENT) + at;
        float4 sum[LATENT_ROWS / 4];
#pragma unroll (LATENT_ROWS / 4)
        for (int n = 0; n < LATENT_ROWS / 4; n++) {
            sum[n] = vload4(n, bias);
        }
        float x[LATENT];
#pragma unroll LATENT
        for (int k = 0; k < LATENT; k++) {
            x[k] = z[k];
        }
#pragma unroll LATENT
        for (int k = 0; k < LATENT; k++) {
#pragma unroll (LATENT_ROWS / 4)
            for (int n = 0; n < LATENT_ROWS / 4; n++) {
                sum[n] = fma(*(__global const float4 *)(weight + k * WEIGHT_ROW + 4 * n), (float4)(x[k]), sum[n]);
            }
        }
        const int slot = found != 0 ? found[first_row + bar] : MISS;
        float total = 0.0f;
#pragma unroll LATENT
        for (int l = 0; l < LATENT; l++) {
            const float4 four = sum[l / 4];
            token[l] = l % 4 == 0 ? four.x : l % 4 == 1 ? four.y : l % 4 == 2 ? four.z : four.w;
            if (slot >= 0) {
                token[l] = token[l] + shift[(long)slot * (SCENARIOS * HORIZON * LATENT) + at + l];
            }
            total = total + token[l];
        }
        const float mean = total / (float)LATENT;
        float squares = 0.0f;
#pragma unroll LATENT
        for (int l = 0; l < LATENT; l++) {
            squares = fma(token[l] - mean, token[l] - mean, squares);
        }
        const float scale = 1.0f / sqrt(squares / (float)LATENT + eps);
#pragma unroll LATENT
        for (int l = 0; l < LATENT; l++) {
            token[l] = fma((token[l] - mean) * scale, norm[l], norm[LATENT + l]) + position[h * LATENT + l];
        }
    } else {
#pragma unroll LATENT
        for (int l = 0; l < LATENT; l++) {
            token[l] = 0.0f;
        }
    }
#if TENSOR
    store_operand((__global uint *)(row + TOKENS_AT) + s * 128, h, token);
#else
#pragma unroll LATENT
    for (int l = 0; l < LATENT; l++) {
        row[(s * HORIZON + h) * LATENT + l] = token[l];
    }
#endif
}
