// A dense layer over rows of bars: the mlp's first layer as far as the bar decides it, and the
// scenario network's layers that no episode touches.

// out = max(bias[j] + sum_k weight[k][j] * x[first + row][k], least) for rows [0, rows). `parts` rows
// make a row of out, side by side from column `at` on; rows of out are counted from first_out.
// Global size (n_out, rows/BARS_PER_ITEM).
__kernel void bar_dense(__global const float *restrict x,      // [...][stride]
                        __global const float *restrict weight, // [n_in][n_out]
                        __global const float *restrict bias,   // [n_out]
                        __global float *restrict out,          // [...][out_stride]
                        const int first, const int stride, const int n_in, const int n_out, const int rows,
                        const int parts, const int first_out, const int out_stride, const int at,
                        const float least)
{
    const int j = get_global_id(0);
    const int begin = get_global_id(1) * BARS_PER_ITEM;
    float sum[BARS_PER_ITEM];
    const float start = bias[j];
    for (int i = 0; i < BARS_PER_ITEM; i++) {
        sum[i] = start;
    }
    for (int k = 0; k < n_in; k++) {
        const float w = weight[k * n_out + j];
        for (int i = 0; i < BARS_PER_ITEM; i++) {
            const long row = first + min(begin + i, rows - 1);
            sum[i] = fma(w, x[row * stride + k], sum[i]);
        }
    }
    for (int i = 0; i < BARS_PER_ITEM; i++) {
        if (begin + i < rows) {
            const long row = first_out + (begin + i) / parts;
            out[row * out_stride + at + (begin + i) % parts * n_out + j] = max(sum[i], least);
        }
    }
}
