// The bar's part of the first layer: linear, so computed once per bar and weight version.

// hidden[policy][bar][j] = b1[j] + sum_k w1[k][j] * x[bar][k]; global size (HIDDEN1, bars/8, policies)
__kernel void bar_hidden(__global const float *restrict x,       // [bars][N_BAR_PART]
                         __global const float *restrict w1,      // [policies][N_BAR_PART][HIDDEN1]
                         __global const float *restrict b1,      // [policies][HIDDEN1]
                         __global float *restrict hidden,        // [policies][bars][HIDDEN1]
                         const int bars)
{
    const int j = get_global_id(0);
    const int first = get_global_id(1) * BARS_PER_ITEM;
    const int policy = get_global_id(2);
    float sum[BARS_PER_ITEM];
    const float bias = b1[policy * HIDDEN1 + j];
    for (int i = 0; i < BARS_PER_ITEM; i++) {
        sum[i] = bias;
    }
    __global const float *w = w1 + (long)policy * N_BAR_PART * HIDDEN1 + j;
    for (int k = 0; k < N_BAR_PART; k++) {
        const float wk = w[k * HIDDEN1];
        for (int i = 0; i < BARS_PER_ITEM; i++) {
            const int bar = min(first + i, bars - 1);
            sum[i] = fma(wk, x[(long)bar * N_BAR_PART + k], sum[i]);
        }
    }
    for (int i = 0; i < BARS_PER_ITEM; i++) {
        if (first + i < bars) {
            hidden[((long)policy * bars + first + i) * HIDDEN1 + j] = sum[i];
        }
    }
}
