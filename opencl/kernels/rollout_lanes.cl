// Rollout for CPUs: one work-item walks LANES episodes of one policy side by side.

__kernel void rollout_lanes(
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
    __global const int *restrict episodes,   // [tiles][LANES], negative: none, those at the end
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
    __global float *restrict history,        // [tiles][STACK - 1][HIDDEN1][LANES] or null
    const int first_bar, const int first_row, const int rows, const int n, const int per_policy,
    const int steps, const int first_step, const int stop_step, const float epsilon,
    const uint stage_round)
{
    const int tile = get_global_id(0);
    int own[LANES];
    int count = 0;
    for (int i = 0; i < LANES; i++) {
        const int episode = episodes[tile * LANES + i];
        count = episode >= 0 ? i + 1 : count;
        own[i] = episode >= 0 ? episode : own[count - 1]; // surplus lanes shadow the last episode
    }
    const int policy = own[0] / per_policy;
    const Part part = parts[policy];
    const MarketParams rules = market_of(params, part);
    const Policy p = policy_at(part, rows, table, found, query, w1, b1, w2, b2, w3, b3, z, alpha,
                               bank_keys, center, entries, disagree, shift, guess);
    EpisodeState state[LANES];
    bool alive[LANES];
    int place[LANES];
    for (int i = 0; i < LANES; i++) {
        state[i] = first_step > 0 ? memory[own[i]] : reset(&rules);
        alive[i] = i < count && (first_step == 0 || living[own[i]] != 0);
        place[i] = start[own[i]] - part.origin - first_row;
    }
    lanes_t a[HIDDEN1 > HIDDEN2 ? HIDDEN1 : HIDDEN2];
    lanes_t b[HIDDEN2];
    lanes_t f[N_PORTFOLIO];
    lanes_t logits[HEAD];
    lanes_t q[N_HEADS];
    lanes_t past[PAST_SIZE];
    int slot[LANES];
    for (int j = 0; j < PAST_SIZE; j++) {
        past[j] = first_step > 0 && history != 0 ? vload16(tile * PAST_SIZE + j, history) : (lanes_t)(0.0f);
    }
    for (int t = first_step; t <= stop_step; t++) {
        if (t == stop_step && t < steps) {
            break;
        }
        for (int i = 0; i < LANES; i++) {
            float mine[N_PORTFOLIO];
            portfolio_state(&rules, &state[i], bars[start[own[i]] + t - first_bar], t, mine);
            for (int k = 0; k < N_PORTFOLIO; k++) {
                ((float *)&f[k])[i] = mine[k];
            }
            if (i < count) {
                record_portfolio(portfolio, t, n, own[i], mine);
            }
        }
        if (t == steps) {
            break;
        }
        encode(&p, place, f, count, t, past, slot, a);
        dense_lanes(p.w2, p.b2, a, HIDDEN1, b, HIDDEN2);
        relu_lanes(b, HIDDEN2);
        for (int h = 0; h < N_HEADS; h++) {
            dense_lanes(p.w3 + h * HEAD * HIDDEN2, p.b3 + h * HEAD, b, HIDDEN2, logits, HEAD);
            q[h] = expected_lanes(logits, p.z);
        }
        for (int i = 0; i < count; i++) {
            const int episode = own[i];
            const int bar = start[episode] + t - first_bar;
            const long row = (long)t * n + episode;
            float mine[N_HEADS];
            for (int h = 0; h < N_HEADS; h++) {
                mine[h] = ((const float *)&q[h])[i];
            }
            bypass(mine, p.alpha, x[(long)bar * N_BAR_PART + AUX_COLUMN]);
            if (values != 0) {
                for (int h = 0; h < N_HEADS; h++) {
                    values[row * N_HEADS + h] = mine[h];
                }
            }
            record_slots(slots, row, alive[i], slot[i], &p, place[i] + t);
            int4 action = (int4)(0);
            StepResult r = dead_step();
            if (alive[i]) {
                const uint id = episode - policy * per_policy;
                action = choose(mine, drawn_action(epsilon, keys[policy], stage_round, id, (uint)t));
                r = step(&rules, &state[i], action, bars[bar], bars[bar + 1], t, t == part.steps - 1, aux[bar]);
                alive[i] = r.end == END_RUNNING;
            }
            record_step(actions, rewards, equity, ends, trace, row, action, &r);
        }
    }
    if (memory != 0) {
        for (int i = 0; i < count; i++) {
            memory[own[i]] = state[i];
            living[own[i]] = alive[i];
        }
        for (int j = 0; history != 0 && j < PAST_SIZE; j++) {
            vstore16(past[j], tile * PAST_SIZE + j, history);
        }
    }
}
