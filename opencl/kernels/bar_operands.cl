// Tokens of the scenario network as tensor cores read them (scenario_tensor.cl): bf16, rounded to
// nearest even, padded to 16 tokens of 16 latents.

inline uint round_bf16(const float x)
{
    const uint bits = as_uint(x);
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

// Latents l and l + 1 of a token, `low` in the low half; zeros behind the last of both.
inline uint token_pair(__global const float *tokens, const int h, const int l)
{
    if (h >= HORIZON || l >= LATENT) {
        return 0u;
    }
    __global const float *x = tokens + h * LATENT + l;
    return round_bf16(x[0]) | round_bf16(x[1]) << 16;
}

// Lane 4*g + t of a scenario gets latents 2t, 2t + 1 and 2t + 8, 2t + 9 of token g, then of token
// g + 8. Global size (32*SCENARIOS, bars or more).
__kernel void bar_operands(__global float *table, // [...][BAR_ROW]
                           const int first_row, const int bars)
{
    if (get_global_id(1) >= bars) {
        return;
    }
    __global float *row = table + (first_row + (long)get_global_id(1)) * BAR_ROW;
    __global const float *tokens = row + get_global_id(0) / 32 * HORIZON * LATENT;
    const int g = get_global_id(0) % 32 / 4;
    const int l = get_global_id(0) % 4 * 2;
    ((__global uint4 *)(row + TOKENS_AT))[get_global_id(0)] =
        (uint4)(token_pair(tokens, g, l), token_pair(tokens, g, l + 8), token_pair(tokens, g + 8, l),
                token_pair(tokens, g + 8, l + 8));
}
