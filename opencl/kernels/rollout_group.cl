// Rollout for GPUs: a work-group of GROUP items walks TILE episodes of one policy together. Items
// 0..TILE-1 own one episode each: they walk the market, while the others draw the next step's
// exploration. The network is everyone's: encode (of the kind) leaves the first hidden layer in h,
// trunk the second, heads the action values in q; layers_group.cl and layers_tensor.cl say how an
// activation lies in h. Each of the three ends behind a barrier.

// drawn [N_BRANCHES][TILE] of a step: see drawn_value; by the items from FIRST_DRAWER on. id: an
// episode's number within its policy.
inline void draw_group(__local char *drawn, __local const int *id, const float epsilon, const uint2 key,
                       const uint stage_round, const uint t)
{
    for (int i = get_local_id(0) - FIRST_DRAWER; i < N_BRANCHES * TILE; i += GROUP - FIRST_DRAWER) {
        if (i >= 0) {
            const int branch = i / TILE;
            const int n = LEARNED >> branch & 1 ? BRANCH_SIZE[branch] : 0;
            const uint episode = (uint)id[i % TILE];
            drawn[i] = n == 0 ? -1 : drawn_value(n, epsilon, key, stage_round, episode, t, (uint)branch);
        }
    }
}

#if REGISTERS > 0 // the build option that says so gives way to a required size
__kernel void rollout_group(
#else
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void rollout_group(
#endif
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
    __local hidden_t h[H_SIZE] __attribute__((aligned(16)));
    __local float room[ROOM_ROWS * ROW] __attribute__((aligned(16))); // encode's
    __local float f[F_ROWS * ROW] __attribute__((aligned(16))); // portfolio states, then q
    __local char drawn[2 * N_BRANCHES * TILE]; // of this step and the next
    __local int place[TILE];                   // row of step 0 in the table
    __local int id[TILE];
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
        id[j] = own - policy * per_policy;
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
            portfolio_state(&rules, &state, bar_at(bars, own_bar + t), t, mine);
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
        __local char *chance = drawn + t % 2 * (N_BRANCHES * TILE);
        if (epsilon > 0.0f) {
            draw_group(chance, id, epsilon, keys[policy], stage_round, (uint)t);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        encode(&p, place, f, count, t, past, slot, &unsure, h, room);
        trunk(&p, h);
        heads(&p, h, f);
        if (j < count) {
            const int bar = own_bar + t;
            const long row = (long)t * n + own;
            float mine[N_HEADS];
            for (int i = 0; i < N_HEADS; i++) {
                mine[i] = f[i * ROW + j];
            }
            bypass(mine, p.alpha, x[(long)bar * N_BAR_PART + AUX_COLUMN]);
            if (values != 0) {
                for (int i = 0; i < N_HEADS; i++) {
                    values[row * N_HEADS + i] = mine[i];
                }
            }
            record_slots(slots, row, alive, slot[j], &p, place[j] + t);
            int4 action = (int4)(0);
            StepResult r = dead_step();
            if (alive) {
                int4 chosen = (int4)(-1);
                if (epsilon > 0.0f) {
                    chosen = (int4)(chance[j], chance[TILE + j], chance[2 * TILE + j], chance[3 * TILE + j]);
                }
                action = choose(mine, chosen);
                r = step(&rules, &state, action, bar_at(bars, bar), bar_at(bars, bar + 1), t, t == part.steps - 1,
                         aux[bar]);
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
