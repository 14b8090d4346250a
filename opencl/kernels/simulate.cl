// Evaluation of given actions or target positions, and the market alone under random actions.

// One work-item walks one strategy through [start, start + steps): targets in, equity out.
// targets and the optional outputs are [steps][n]; neighbours read and write neighbours.
__kernel void portfolio_sim_kernel(__constant const MarketParams *params, __global const Bar *restrict bars,
                                   __global const float *restrict aux,
                                   __global const int *restrict start,     // [n], global bars
                                   __global const float *restrict targets, // [steps][n], units
                                   __global float *restrict equity,        // [steps][n], currency
                                   __global StepResult *restrict trace,    // [steps][n] or null
                                   __global EpisodeState *restrict final,  // [n]
                                   const int first_bar, const int n, const int steps)
{
    const int i = get_global_id(0);
    if (i >= n) {
        return;
    }
    EpisodeState state = reset(params);
    bool alive = true;
    int bar = start[i] - first_bar;
    Bar now = bars[bar];
    for (int t = 0; t < steps; t++, bar++) {
        const Bar nxt = bars[bar + 1];
        const long row = (long)t * n + i;
        StepResult r = dead_step();
        if (alive) {
            r = advance(params, &state, targets[row], 1.0f, ORDER_MARKET, now, nxt, t, t == steps - 1,
                        aux[bar]);
            alive = r.end == END_RUNNING;
        }
        equity[row] = state.portfolio_val;
        if (trace != 0) {
            trace[row] = r;
        }
        now = nxt;
    }
    final[i] = state;
}

// The same for actions (direction, magnitude, order, urgency), with every state on the way.
__kernel void action_sim_kernel(__constant const MarketParams *params, __global const Bar *restrict bars,
                                __global const float *restrict aux,
                                __global const int *restrict start,       // [n], global bars
                                __global const uchar4 *restrict actions,  // [steps][n]
                                __global StepResult *restrict trace,      // [steps][n]
                                __global EpisodeState *restrict states,   // [steps + 1][n]
                                const int first_bar, const int n, const int steps)
{
    const int i = get_global_id(0);
    if (i >= n) {
        return;
    }
    EpisodeState state = reset(params);
    bool alive = true;
    states[i] = state;
    for (int t = 0; t < steps; t++) {
        const int bar = start[i] - first_bar + t;
        const long row = (long)t * n + i;
        StepResult r = dead_step();
        if (alive) {
            r = step(params, &state, convert_int4(actions[row]), bars[bar], bars[bar + 1], t,
                     t == steps - 1, aux[bar]);
            alive = r.end == END_RUNNING;
        }
        trace[row] = r;
        states[row + n] = state;
    }
}

// The market alone, as fast as it goes: uniform random actions, one word of Philox a step.
__kernel void random_sim_kernel(__constant const MarketParams *params, __global const Bar *restrict bars,
                                __global const float *restrict aux,
                                __global const int *restrict start,    // [n], global bars
                                __global float *restrict rewards,      // [steps][n]
                                __global EpisodeState *restrict final, // [n]
                                const uint2 key, const uint stage_round, const int first_bar, const int n,
                                const int steps)
{
    const int i = get_global_id(0);
    if (i >= n) {
        return;
    }
    EpisodeState state = reset(params);
    bool alive = true;
    int bar = start[i] - first_bar;
    Bar now = bars[bar];
    uint4 word = (uint4)(0);
    for (int t = 0; t < steps; t++, bar++) {
        const Bar nxt = bars[bar + 1];
        if ((t & 3) == 0) {
            word = philox4x32_10((uint4)(stage_round, (uint)i, (uint)t, 0u), key);
        }
        // 4 directions x 3 magnitudes x 3 orders x 3 urgencies = 108 combinations
        const uint pick = mul_hi((t & 3) == 0 ? word.x : (t & 3) == 1 ? word.y : (t & 3) == 2 ? word.z : word.w, 108u);
        const int4 action = (int4)(pick & 3u, (pick >> 2) % 3u, (pick >> 2) / 3u % 3u, (pick >> 2) / 9u);
        StepResult r = dead_step();
        if (alive) {
            r = step(params, &state, action, now, nxt, t, t == steps - 1, aux[bar]);
            alive = r.end == END_RUNNING;
        }
        rewards[(long)t * n + i] = r.reward;
        now = nxt;
    }
    final[i] = state;
}
