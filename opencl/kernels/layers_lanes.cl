// Layers for CPUs: LANES episodes side by side, one vector a neuron.

typedef float16 lanes_t; // LANES floats

// out[j] += sum_k weight[j][k] * in[k] for LANES episodes; four outputs at a time so that one load
// of in[k] feeds four multiply-adds. n_out is a multiple of 4 (the host pads).
inline void add_lanes(__global const float *restrict weight, const lanes_t *in, const int n_in, lanes_t *out,
                      const int n_out)
{
    for (int j = 0; j < n_out; j += 4) {
        lanes_t s0 = out[j];
        lanes_t s1 = out[j + 1];
        lanes_t s2 = out[j + 2];
        lanes_t s3 = out[j + 3];
        __global const float *w = weight + (long)j * n_in;
        for (int k = 0; k < n_in; k++) {
            const lanes_t x = in[k];
            s0 = fma((lanes_t)(w[k]), x, s0);
            s1 = fma((lanes_t)(w[k + n_in]), x, s1);
            s2 = fma((lanes_t)(w[k + 2 * n_in]), x, s2);
            s3 = fma((lanes_t)(w[k + 3 * n_in]), x, s3);
        }
        out[j] = s0;
        out[j + 1] = s1;
        out[j + 2] = s2;
        out[j + 3] = s3;
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
