// Layers for GPUs in float32. The activations h of TILE episodes lie in local memory,
// [neuron][episode]: hidden_t is float, H_SIZE of them. A row is ROW floats, four more than the
// tile: items store rows side by side, and a stride of the tile would put them all in the same
// memory bank. Rows are read and written four floats at a time.
//
// An item owns OWN episodes (four neighbours, or eight: four in each half of the tile), and a share of
// the neurons, every SHARES-th. Its sums stay in registers: a weight is read once for its episodes, an
// activation for a block of neurons. Weights are [n_in/4][n_out][4]: items side by side read
// neighbours.

typedef float hidden_t;

#define OWNERS (TILE / OWN)
#define SHARES (GROUP / OWNERS)

#if OWN == 4
typedef float4 own_t;
inline own_t load_own(__local const float *row) { return *(__local const float4 *)row; }
inline void store_own(__local float *row, const own_t x) { *(__local float4 *)row = x; }
#else
typedef float8 own_t;
inline own_t load_own(__local const float *row)
{
    return (own_t)(*(__local const float4 *)row, *(__local const float4 *)(row + TILE / 2));
}
inline void store_own(__local float *row, const own_t x)
{
    *(__local float4 *)row = x.lo;
    *(__local float4 *)(row + TILE / 2) = x.hi;
}
#endif

// sum[i] += weight[.][column + i*stride] * h for `block` columns. n is a multiple of four; additions go
// from the first input to the last.
inline __attribute__((always_inline)) void
add_block(own_t *sum, const int block, __global const float4 *weight, const int n_out, const int column,
          const int stride, __local const float *h, const int n)
{
    weight = weight + column;
    for (int k = 0; k < n; k += 4) {
        const own_t x0 = load_own(h + k * ROW);
        const own_t x1 = load_own(h + (k + 1) * ROW);
        const own_t x2 = load_own(h + (k + 2) * ROW);
        const own_t x3 = load_own(h + (k + 3) * ROW);
#pragma unroll
        for (int i = 0; i < block; i++) {
            const float4 w = weight[i * stride];
            sum[i] = fma((own_t)(w.x), x0, sum[i]);
            sum[i] = fma((own_t)(w.y), x1, sum[i]);
            sum[i] = fma((own_t)(w.z), x2, sum[i]);
            sum[i] = fma((own_t)(w.w), x3, sum[i]);
        }
        weight = weight + n_out;
    }
}

// The second hidden layer takes the place of the first. Ends behind a barrier.
inline void trunk(const Policy *p, __local float *h)
{
    const int share = get_local_id(0) / OWNERS;
    __local float *mine = h + get_local_id(0) % OWNERS * 4;
    own_t sum[TRUNK_BLOCK];
    if (share < TRUNK_SHARES) {
#pragma unroll
        for (int i = 0; i < TRUNK_BLOCK; i++) {
            sum[i] = (own_t)(p->b2[share + i * TRUNK_SHARES]);
        }
        add_block(sum, TRUNK_BLOCK, (__global const float4 *)p->w2, TRUNK_BLOCK * TRUNK_SHARES, share,
                  TRUNK_SHARES, mine, HIDDEN1);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (share < TRUNK_SHARES) {
#pragma unroll
        for (int i = 0; i < TRUNK_BLOCK; i++) {
            if (share + i * TRUNK_SHARES < HIDDEN2) {
                store_own(mine + (share + i * TRUNK_SHARES) * ROW, max(sum[i], (own_t)(0.0f)));
            }
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

// Expected returns, q [N_HEADS][ROW]. A share is a head; its atoms come HEAD_BLOCK at a time, and
// the softmax is taken as they come (Milakov & Gimelshein 2018). Ends behind a barrier.
inline void heads(const Policy *p, __local const float *h, __local float *q)
{
    const int own = get_local_id(0) % OWNERS * 4;
    for (int head = get_local_id(0) / OWNERS; head < N_HEADS; head += SHARES) {
        own_t top = (own_t)(-INFINITY);
        own_t num = (own_t)(0.0f);
        own_t den = (own_t)(0.0f);
        for (int first = 0; first < HEAD; first += HEAD_BLOCK) {
            own_t sum[HEAD_BLOCK];
#pragma unroll
            for (int i = 0; i < HEAD_BLOCK; i++) {
                sum[i] = (own_t)(p->b3[(first + i) * N_HEADS + head]);
            }
            add_block(sum, HEAD_BLOCK, (__global const float4 *)p->w3, N_HEADS * HEAD,
                      first * N_HEADS + head, N_HEADS, h + own, HIDDEN2);
            own_t high = top;
#pragma unroll
            for (int i = 0; i < HEAD_BLOCK; i++) {
                high = max(high, sum[i]);
            }
            const own_t shrink = exp(top - high);
            num = num * shrink;
            den = den * shrink;
            top = high;
#pragma unroll
            for (int i = 0; i < HEAD_BLOCK; i++) { // a padded atom's logit is -infinity
                const own_t e = exp(sum[i] - top);
                num = fma(e, (own_t)(p->z[first + i]), num);
                den = den + e;
            }
        }
        store_own(q + head * ROW + own, num / den);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}
