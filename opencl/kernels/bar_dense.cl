// A dense layer over rows of bars: the mlp's first layer as far as the bar decides it, and the
// scenario network's layers that no episode touches.

// out = max(bias[j] + sum_k weight[k][j] * x[first + row][k], least) for rows [0, rows). `parts` rows
// make a row of out, side by side from column `at` on; rows of out are counted from first_out.
// An item computes eight columns of BARS_PER_ITEM rows; global size (n_out/8, rows/BARS_PER_ITEM).
__kernel __attribute__((vec_type_hint(float8))) void bar_dense(
    __global const float *restrict x,      // [...][stride]
    __global const float *restrict weight, // [n_in][width], width is n_out up to a multiple of 8
    __global const float *restrict bias,   // [width]
    __global float *restrict out,          // [...][out_stride]
    const int first, const int stride, const int n_in, const int n_out, const int rows,
    const int parts, const int first_out, const int out_stride, const int at, const float least)
{
    const int block = get_global_id(0);
    const int width = (n_out + 7) / 8;
    const int begin = get_global_id(1) * BARS_PER_ITEM;
    const float8 start = vload8(block, bias);
    __global const float *from[BARS_PER_ITEM];
    float8 sum[BARS_PER_ITEM];
    for (int i = 0; i < BARS_PER_ITEM; i++) {
        from[i] = x + (long)(first + min(begin + i, rows - 1)) * stride;
        sum[i] = start;
    }
    for (int k = 0; k < n_in; k++) {
        const float8 w = vload8(k * width + block, weight);
        for (int i = 0; i < BARS_PER_ITEM; i++) {
            sum[i] = fma(w, (float8)(from[i][k]), sum[i]);
        }
    }
    for (int i = 0; i < BARS_PER_ITEM && begin + i < rows; i++) {
        const long row = first_out + (begin + i) / parts;
        __global float *to = out + row * out_stride + at + (begin + i) % parts * n_out + 8 * block;
        const float8 y = max(sum[i], (float8)(least));
        if (8 * block + 8 <= n_out) {
            vstore8(y, 0, to);
        } else {
            for (int j = 0; 8 * block + j < n_out; j++) {
                to[j] = ((const float *)&y)[j];
            }
        }
    }
}
