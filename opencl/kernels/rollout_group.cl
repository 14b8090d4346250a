// Rollout for GPUs: a work-group of GROUP items walks TILE episodes together. Item j computes
// neuron j of every episode of the tile; activations lie in local memory, [neuron][episode]. A row
// is ROW floats, four more than the tile: items store rows side by side, and a stride of the tile
// would put them all in the same memory bank. Rows are read and written four floats at a time.

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

// Rows of local memory: h1 (its place is reused for logits), h2, f the portfolio states, q.
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void rollout_group(
    const MarketParams params,
    __global const Bar *restrict bars,     // [bars]
    __global const float *restrict aux,    // [bars]
    __global const float *restrict hidden, // [policies][bars][HIDDEN1]
    __global const float *restrict w1,     // [policies][N_PORTFOLIO][HIDDEN1]
    __global const float *restrict w2,     // [policies][HIDDEN1][HIDDEN2]
    __global const float *restrict b2,     // [policies][HIDDEN2]
    __global const float *restrict w3,     // [policies][HIDDEN2][N_HEADS*HEAD]
    __global const float *restrict b3,     // [policies][N_HEADS*HEAD]
    __global const float *restrict z,      // [policies][ATOMS]
    __global const uint2 *restrict keys,   // [policies]
    __global const int *restrict start,    // [n], global bar of step 0
    __global uchar4 *restrict actions,     // [steps][n]
    __global float *restrict rewards,      // [steps][n]
    __global float *restrict equity,       // [steps][n], currency
    __global uchar *restrict ends,         // [steps][n]
    __global float *restrict portfolio,    // [steps + 1][N_PORTFOLIO][n] or null
    __global StepResult *restrict trace,   // [steps][n] or null
    __global float *restrict values,       // [steps][n][N_HEADS] or null
    const int first_bar, const int n_bars, const int n, const int per_policy, const int steps,
    const float epsilon, const uint stage_round)
{
    __local float h1[LOGIT_ROWS * ROW] __attribute__((aligned(16)));
    __local float h2[HIDDEN2 * ROW] __attribute__((aligned(16)));
    __local float f[N_PORTFOLIO * ROW] __attribute__((aligned(16)));
    __local float q[N_HEADS * ROW];
    const int j = get_local_id(0);
    const int tiles = (per_policy + TILE - 1) / TILE;
    const int policy = get_group_id(0) / tiles;
    const int first = (get_group_id(0) % tiles) * TILE;
    const int count = min(TILE, per_policy - first);
    const int columns = N_HEADS * HEAD;
    // Items 0..TILE-1 own one episode each; surplus ones shadow the last episode and write nothing.
    const int own = policy * per_policy + first + min(j, count - 1);
    const int own_bar = start[own] - first_bar;
    EpisodeState state = reset(&params);
    bool alive = j < count;
    for (int t = 0; t <= steps; t++) {
        if (j < TILE) {
            float mine[N_PORTFOLIO];
            portfolio_state(&params, &state, bars[own_bar + t], t, mine);
            for (int k = 0; k < N_PORTFOLIO; k++) {
                f[k * ROW + j] = mine[k];
            }
            if (j < count) {
                record_portfolio(portfolio, t, n, own, mine);
            }
        }
        if (t == steps) {
            break;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        float sum[TILE];
        for (int neuron = j; neuron < HIDDEN1; neuron += GROUP) {
            for (int e = 0; e < TILE; e++) {
                const int episode = policy * per_policy + first + min(e, count - 1);
                const long bar = start[episode] - first_bar + t;
                sum[e] = hidden[((long)policy * n_bars + bar) * HIDDEN1 + neuron];
            }
            for (int k = 0; k < N_PORTFOLIO; k++) {
                accumulate(sum, w1[(policy * N_PORTFOLIO + k) * HIDDEN1 + neuron], f + k * ROW);
            }
            store_row(h1 + neuron * ROW, sum, 0.0f);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int neuron = j; neuron < HIDDEN2; neuron += GROUP) {
            for (int e = 0; e < TILE; e++) {
                sum[e] = b2[policy * HIDDEN2 + neuron];
            }
            for (int k = 0; k < HIDDEN1; k++) {
                accumulate(sum, w2[((long)policy * HIDDEN1 + k) * HIDDEN2 + neuron], h1 + k * ROW);
            }
            store_row(h2 + neuron * ROW, sum, 0.0f);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        // GROUP/HEAD actions at a time: their logits replace h1.
        for (int pass = 0; pass < columns; pass += GROUP) {
            const int column = pass + j;
            if (column < columns) {
                for (int e = 0; e < TILE; e++) {
                    sum[e] = b3[policy * columns + column];
                }
                for (int k = 0; k < HIDDEN2; k++) {
                    accumulate(sum, w3[((long)policy * HIDDEN2 + k) * columns + column], h2 + k * ROW);
                }
                store_row(h1 + j * ROW, sum, -INFINITY);
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int i = j; i < (GROUP / HEAD) * TILE; i += GROUP) {
                const int head = pass / HEAD + i / TILE;
                if (head < N_HEADS) {
                    q[head * ROW + i % TILE] =
                        expected_local(h1 + (i / TILE) * HEAD * ROW + i % TILE, z + policy * ATOMS);
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        if (j < count) {
            const long row = (long)t * n + own;
            float mine[N_HEADS];
            for (int h = 0; h < N_HEADS; h++) {
                mine[h] = q[h * ROW + j];
                if (values != 0) {
                    values[row * N_HEADS + h] = mine[h];
                }
            }
            int4 action = (int4)(0);
            StepResult r = dead_step();
            if (alive) {
                const int bar = own_bar + t;
                action = choose(mine, epsilon, keys[policy], stage_round, (uint)(first + j), (uint)t);
                r = step(&params, &state, action, bars[bar], bars[bar + 1], t, t == steps - 1, aux[bar]);
                alive = r.end == END_RUNNING;
            }
            record_step(actions, rewards, equity, ends, trace, row, action, &r);
        }
    }
}
