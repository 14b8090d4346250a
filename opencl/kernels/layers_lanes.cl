// Layers for CPUs: LANES episodes side by side, one vector a neuron.

typedef float16 lanes_t; // LANES floats

// out[j] += sum_k weight[j][k] * in[k] of `block` outputs: a load of in[k] feeds as many multiply-adds.
inline __attribute__((always_inline)) void add_block(__global const float *restrict weight, const lanes_t *in,
                                                     const int n_in, lanes_t *out, const int block)
{
    lanes_t sum[LANE_SUMS];
#pragma unroll
    for (int i = 0; i < block; i++) {
        sum[i] = out[i];
    }
    for (int k = 0; k < n_in; k++) {
        const lanes_t x = in[k];
#pragma unroll
        for (int i = 0; i < block; i++) {
            sum[i] = fma((lanes_t)(weight[k + i * n_in]), x, sum[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < block; i++) {
        out[i] = sum[i];
    }
}

// The same of n_out outputs, a multiple of 4 (the host pads), as many at a time as divide them and as
// LANE_SUMS registers hold: with few, a sum waits for its last multiply-add.
inline void add_lanes(__global const float *restrict weight, const lanes_t *in, const int n_in, lanes_t *out,
                      const int n_out)
{
    const int most = n_out % LANE_SUMS == 0 ? LANE_SUMS : (n_out % 16 == 0 ? 16 : (n_out % 8 == 0 ? 8 : 4));
    const int block = most < LANE_SUMS ? most : LANE_SUMS;
    for (int j = 0; j < n_out; j += block) {
        add_block(weight + (long)j * n_in, in, n_in, out + j, block);
    }
}

// out[j] = bias[j] + sum_k weight[j][k] * in[k]; otherwise as add_lanes.
inline void dense_lanes(__global const float *restrict weight, __global const float *restrict bias,
                        const lanes_t *in, const int n_in, lanes_t *out, const int n_out)
{
    for (int j = 0; j < n_out; j++) {
        out[j] = (lanes_t)(bias[j]);
    }
    add_lanes(weight, in, n_in, out, n_out);
}

// Negative values of n neurons become 0.
inline void relu_lanes(lanes_t *x, const int n)
{
    for (int j = 0; j < n; j++) {
        x[j] = fmax(x[j], (lanes_t)(0.0f));
    }
}

// Expected value of one action's return distribution: sum softmax(logits)*z.
inline lanes_t expected_lanes(const lanes_t *logits, __global const float *z)
{
    lanes_t top = logits[0];
    for (int i = 1; i < ATOMS; i++) {
        top = fmax(top, logits[i]);
    }
    lanes_t num = (lanes_t)(0.0f);
    lanes_t den = (lanes_t)(0.0f);
    for (int i = 0; i < ATOMS; i++) {
        const lanes_t e = exp(logits[i] - top);
        num = fma(e, (lanes_t)(z[i]), num);
        den = den + e;
    }
    return num / den;
}
