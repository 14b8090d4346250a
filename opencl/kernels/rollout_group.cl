// Rollout for GPUs: a work-group of GROUP items walks TILE episodes of one policy together. Item j
// computes neuron j of every episode; items 0..TILE-1 own one episode each.

// Rows of local memory: h1 (its place is reused for logits), h2, f the portfolio states, q.
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void rollout_group(
    const MarketParams params,
    __global const Bar *restrict bars,       // [bars]
    __global const float *restrict aux,      // [bars]
    __global const float *restrict x,        // [bars][N_BAR_PART], the bars' part of the state
    __global const float *restrict table,    // [tables][rows][BAR_ROW], from bar origin + first_row on
    __global const char *restrict found,     // [tables][rows] or null
    __global const float *restrict query,    // these as in Policy, one after the other
    __global const float *restrict w1, __global const float *restrict b1, __global const float *restrict w2,
    __global const float *restrict b2, __global const float *restrict w3, __global const float *restrict b3,
    __global const float *restrict z, __global const float *restrict alpha,
    __global const float *restrict bank_keys, __global const float *restrict center,
    __global const float4 *restrict entries, __global const uchar *restrict disagree,
    __global const float *restrict shift, __global const float *restrict guess,
    __global const Part *restrict parts,     // [policies]
    __global const uint2 *restrict keys,     // [policies]
    __global const int *restrict episodes,   // [tiles][TILE], negative: none, those at the end
    __global const int *restrict start,      // [n], global bar of step 0
    __global uchar4 *restrict actions,       // [steps][n]
    __global float *restrict rewards,        // [steps][n]
    __global float *restrict equity,         // [steps][n], currency
    __global uchar *restrict ends,           // [steps][n]
    __global float *restrict portfolio,      // [steps + 1][N_PORTFOLIO][n] or null
    __global StepResult *restrict trace,     // [steps][n] or null
    __global float *restrict values,         // [steps][n][N_HEADS] or null
    __global char2 *restrict slots,          // [steps][n] or null
    __global EpisodeState *restrict memory,  // [n] or null, between two launches of one walk
    __global uchar *restrict living,         // [n] or null
    __global float *restrict history,        // [tiles][STACK - 1][HIDDEN1][TILE] or null
    const int first_bar, const int first_row, const int rows, const int n, const int per_policy,
    const int steps, const int first_step, const int stop_step, const float epsilon,
    const uint stage_round)
{
    __local float h1[LOGIT_ROWS * ROW] __attribute__((aligned(16)));
    __local float h2[ROOM_ROWS * ROW] __attribute__((aligned(16)));
    __local float f[N_PORTFOLIO * ROW] __attribute__((aligned(16)));
    __local float q[N_HEADS * ROW];
    __local int place[TILE];
    __local int slot[TILE];
    __local int unsure;
    const int j = get_local_id(0);
    const int tile = get_group_id(0);
    int count = 0;
    for (int e = 0; e < TILE; e++) {
        count += episodes[tile * TILE + e] >= 0;
    }
    const int policy = episodes[tile * TILE] / per_policy;
    const Part part = parts[policy];
    const MarketParams rules = market_of(params, part);
    const Policy p = policy_at(part, rows, table, found, query, w1, b1, w2, b2, w3, b3, z, alpha,
                               bank_keys, center, entries, disagree, shift, guess);
    const int columns = N_HEADS * HEAD;
    // surplus items shadow the last episode and write nothing
    const int own = episodes[tile * TILE + min(j, count - 1)];
    const int own_bar = start[own] - first_bar;
    EpisodeState state = reset(&rules);
    bool alive = j < count;
    if (first_step > 0) {
        state = memory[own];
        alive = alive && living[own] != 0;
    }
    if (j < TILE) {
        place[j] = start[own] - part.origin - first_row;
    }
    __global float *past = history != 0 ? history + (long)tile * PAST_SIZE * TILE : 0;
    for (int i = j; first_step == 0 && past != 0 && i < PAST_SIZE * TILE; i += GROUP) {
        past[i] = 0.0f;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    for (int t = first_step; t <= stop_step; t++) {
        if (t == stop_step && t < steps) {
            break;
        }
        if (j < TILE) {
            float mine[N_PORTFOLIO];
            portfolio_state(&rules, &state, bars[own_bar + t], t, mine);
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
        encode(&p, place, f, count, t, past, slot, &unsure, h1, h2);
        float sum[TILE];
        for (int neuron = j; neuron < HIDDEN2; neuron += GROUP) {
            for (int e = 0; e < TILE; e++) {
                sum[e] = p.b2[neuron];
            }
            for (int k = 0; k < HIDDEN1; k++) {
                accumulate(sum, p.w2[k * HIDDEN2 + neuron], h1 + k * ROW);
            }
            store_row(h2 + neuron * ROW, sum, 0.0f);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        // GROUP/HEAD actions at a time: their logits replace h1.
        for (int pass = 0; pass < columns; pass += GROUP) {
            const int column = pass + j;
            if (column < columns) {
                for (int e = 0; e < TILE; e++) {
                    sum[e] = p.b3[column];
                }
                for (int k = 0; k < HIDDEN2; k++) {
                    accumulate(sum, p.w3[k * columns + column], h2 + k * ROW);
                }
                store_row(h1 + j * ROW, sum, -INFINITY);
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int i = j; i < (GROUP / HEAD) * TILE; i += GROUP) {
                const int head = pass / HEAD + i / TILE;
                if (head < N_HEADS) {
                    q[head * ROW + i % TILE] = expected_local(h1 + (i / TILE) * HEAD * ROW + i % TILE, p.z);
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        if (j < count) {
            const int bar = own_bar + t;
            const long row = (long)t * n + own;
            float mine[N_HEADS];
            for (int h = 0; h < N_HEADS; h++) {
                mine[h] = q[h * ROW + j];
            }
            bypass(mine, p.alpha, x[(long)bar * N_BAR_PART + AUX_COLUMN]);
            if (values != 0) {
                for (int h = 0; h < N_HEADS; h++) {
                    values[row * N_HEADS + h] = mine[h];
                }
            }
            record_slots(slots, row, alive, slot[j], &p, place[j] + t);
            int4 action = (int4)(0);
            StepResult r = dead_step();
            if (alive) {
                const uint id = own - policy * per_policy;
                action = choose(mine, epsilon, keys[policy], stage_round, id, (uint)t);
                r = step(&rules, &state, action, bars[bar], bars[bar + 1], t, t == part.steps - 1, aux[bar]);
                alive = r.end == END_RUNNING;
            }
            record_step(actions, rewards, equity, ends, trace, row, action, &r);
        }
    }
    if (memory != 0 && j < count) {
        memory[own] = state;
        living[own] = alive;
    }
}
