// Between the forecaster's layers: what a hidden layer says, freed of its size.

// row = max((row - mean)/sqrt(variance + eps), 0) in place, mean and biased variance over the row
// (Ba 2016, without gain and bias); an item a row, global size (rows or more).
__kernel void bar_norm(__global float *restrict hidden, // [rows][width]
                       const int rows, const int width, const float eps)
{
    if (get_global_id(0) >= rows) {
        return;
    }
    __global float *row = hidden + (long)get_global_id(0) * width;
    float sum = 0.0f;
    for (int k = 0; k < width; k++) {
        sum = sum + row[k];
    }
    const float mean = sum / (float)width;
    float squares = 0.0f;
    for (int k = 0; k < width; k++) {
        squares = fma(row[k] - mean, row[k] - mean, squares);
    }
    const float scale = 1.0f / sqrt(squares / (float)width + eps);
    for (int k = 0; k < width; k++) {
        row[k] = max((row[k] - mean) * scale, 0.0f);
    }
}
