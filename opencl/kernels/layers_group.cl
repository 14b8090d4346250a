// Layers for GPUs in float32. The activations h of TILE episodes lie in local memory,
// [neuron][episode]: hidden_t is float, H_SIZE of them. A row is ROW floats, four more than the
// tile: items store rows side by side, and a stride of the tile would put them all in the same
// memory bank. Rows are read and written four floats at a time.
//
// An item owns a quad, four neighbouring episodes, and a share of the neurons, every SHARES-th.
// Its sums stay in registers: a weight is read once for four episodes, an activation for a block of
// neurons. Weights are [n_in/4][n_out][4]: items side by side read neighbours.

typedef float hidden_t;

// sum[i] += weight[.][column + i*stride] * h for `block` columns and a quad. n is a multiple of four;
// additions go from the first input to the last.
inline __attribute__((always_inline)) void
add_block(float4 *sum, const int block, __global const float4 *weight, const int n_out, const int column,
          const int stride, __local const float *h, const int n)
{
    weight = weight + column;
    for (int k = 0; k < n; k += 4) {
        const float4 x0 = *(__local const float4 *)(h + k * ROW);
        const float4 x1 = *(__local const float4 *)(h + (k + 1) * ROW);
        const float4 x2 = *(__local const float4 *)(h + (k + 2) * ROW);
        const float4 x3 = *(__local const float4 *)(h + (k + 3) * ROW);
#pragma unroll
        for (int i = 0; i < block; i++) {
            const float4 w = weight[i * stride];
            sum[i] = fma((float4)(w.x), x0, sum[i]);
            sum[i] = fma((float4)(w.y), x1, sum[i]);
            sum[i] = fma((float4)(w.z), x2, sum[i]);
            sum[i] = fma((float4)(w.w), x3, sum[i]);
        }
        weight = weight + n_out;
    }
}

// The second hidden layer takes the place of the first. Ends behind a barrier.
inline void trunk(const Policy *p, __local float *h)
{
    const int quad = get_local_id(0) % QUADS;
    const int share = get_local_id(0) / QUADS;
    float4 sum[TRUNK_BLOCK];
    if (share < TRUNK_SHARES) {
#pragma unroll
        for (int i = 0; i < TRUNK_BLOCK; i++) {
            sum[i] = (float4)(p->b2[share + i * TRUNK_SHARES]);
        }
        add_block(sum, TRUNK_BLOCK, (__global const float4 *)p->w2, TRUNK_BLOCK * TRUNK_SHARES, share,
                  TRUNK_SHARES, h + 4 * quad, HIDDEN1);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (share < TRUNK_SHARES) {
#pragma unroll
        for (int i = 0; i < TRUNK_BLOCK; i++) {
            if (share + i * TRUNK_SHARES < HIDDEN2) {
                *(__local float4 *)(h + (share + i * TRUNK_SHARES) * ROW + 4 * quad) =
                    max(sum[i], (float4)(0.0f));
            }
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

// Expected returns, q [N_HEADS][ROW]. A share is a head; its atoms come HEAD_BLOCK at a time, and
// the softmax is taken as they come (Milakov & Gimelshein 2018). Ends behind a barrier.
inline void heads(const Policy *p, __local const float *h, __local float *q)
{
    const int quad = get_local_id(0) % QUADS;
    for (int head = get_local_id(0) / QUADS; head < N_HEADS; head += SHARES) {
        float4 top = (float4)(-INFINITY);
        float4 num = (float4)(0.0f);
        float4 den = (float4)(0.0f);
        for (int first = 0; first < HEAD; first += HEAD_BLOCK) {
            float4 sum[HEAD_BLOCK];
#pragma unroll
            for (int i = 0; i < HEAD_BLOCK; i++) {
                sum[i] = (float4)(p->b3[(first + i) * N_HEADS + head]);
            }
            add_block(sum, HEAD_BLOCK, (__global const float4 *)p->w3, N_HEADS * HEAD,
                      first * N_HEADS + head, N_HEADS, h + 4 * quad, HIDDEN2);
            float4 high = top;
#pragma unroll
            for (int i = 0; i < HEAD_BLOCK; i++) {
                high = max(high, sum[i]);
            }
            const float4 shrink = exp(top - high);
            num = num * shrink;
            den = den * shrink;
            top = high;
#pragma unroll
            for (int i = 0; i < HEAD_BLOCK; i++) { // a padded atom's logit is -infinity
                const float4 e = exp(sum[i] - top);
                num = fma(e, (float4)(p->z[first + i]), num);
                den = den + e;
            }
        }
        *(__local float4 *)(q + head * ROW + 4 * quad) = num / den;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}
