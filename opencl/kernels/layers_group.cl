// Layers for GPUs: item j of a work-group of GROUP computes neuron j of TILE episodes, which lie
// in local memory, [neuron][episode]. A row is ROW floats, four more than the tile: items store
// rows side by side, and a stride of the tile would put them all in the same memory bank. Rows are
// read and written four floats at a time.

// sum[e] += weight * in[e] for the whole tile; in is a row of local memory.
inline void accumulate(float *sum, const float weight, __local const float *in)
{
    for (int e = 0; e < TILE; e += 4) {
        const float4 x = *(__local const float4 *)(in + e);
        sum[e] = fma(weight, x.x, sum[e]);
        sum[e + 1] = fma(weight, x.y, sum[e + 1]);
        sum[e + 2] = fma(weight, x.z, sum[e + 2]);
        sum[e + 3] = fma(weight, x.w, sum[e + 3]);
    }
}

// row[e] = max(sum[e], least) for the whole tile.
inline void store_row(__local float *row, const float *sum, const float least)
{
    for (int e = 0; e < TILE; e += 4) {
        const float4 x = (float4)(sum[e], sum[e + 1], sum[e + 2], sum[e + 3]);
        *(__local float4 *)(row + e) = max(x, (float4)(least));
    }
}

// Expected value of one action for one episode from its logits, one a row of local memory.
inline float expected_local(__local const float *logits, __global const float *z)
{
    float top = logits[0];
    for (int i = 1; i < ATOMS; i++) {
        top = max(top, logits[i * ROW]);
    }
    float num = 0.0f;
    float den = 0.0f;
    for (int i = 0; i < ATOMS; i++) {
        const float e = exp(logits[i * ROW] - top);
        num = fma(e, z[i], num);
        den = den + e;
    }
    return num / den;
}
