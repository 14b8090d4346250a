// Evaluation of given actions or target positions, and the market alone under random actions.
// One work-item walks one episode of [start, start + steps). n is a multiple of the work-group (the
// host pads) and a dead episode is stepped too, its outcome dropped: with a branch around the step a
// CPU's vectoriser masks every instruction in it (2.5 times slower), and a GPU gains little. Parameters
// come by value: behind a pointer each use is a load. Work-items are size_t: of an int the compiler
// cannot tell that neighbours write side by side, and scatters.

// Advance an episode under an action if it is alive; a dead one keeps its state.
inline __attribute__((always_inline)) StepResult
step_alive(const MarketParams *p, EpisodeState *s, bool *alive, const int4 action,
           const Bar bar, const Bar nxt, const int t, const bool last, const float aux)
{
    EpisodeState next = *s;
    const StepResult r = step(p, &next, action, bar, nxt, t, last, aux);
    const StepResult shown = *alive ? r : dead_step();
    *s = *alive ? next : *s;
    *alive = *alive && r.end == END_RUNNING;
    return shown;
}

#if TARGET_BITS == 32
typedef float Target;
#elif TARGET_BITS == 16
typedef half Target;
#else
typedef char Target;
#endif

// A target position, units, from the type it was given in.
inline float target_at(__global const Target *targets, const size_t i)
{
#if TARGET_BITS == 16
    return vload_half(i, targets);
#else
    return convert_float(targets[i]);
#endif
}

// Target positions in, totals and, where asked for, equity and every result out. Arrays [steps][n] may
// be null; neighbours read and write neighbours.
inline __attribute__((always_inline)) void
trade_targets(const MarketParams *p, __global const Bar *restrict bars, __global const float *restrict aux,
              __global const int *restrict start, __global const Target *restrict targets,
              __global StrategyTotals *restrict totals, __global float *restrict equity,
              __global StepResult *restrict trace, const int first_bar, const int n, const int steps)
{
    const size_t i = get_global_id(0);
    EpisodeState state = reset(p);
    Tally tally = {0};
    bool alive = true;
    int bar = start[i] - first_bar;
    Bar now = bar_at(bars, bar);
    for (int t = 0; t < steps; t++, bar++) {
        const Bar nxt = bar_at(bars, bar + 1);
        const size_t row = (size_t)t * n + i;
        EpisodeState next = state;
        Tally counted = tally;
        const StepResult r = advance(p, &next, target_at(targets, row), 1.0f, ORDER_MARKET, now, nxt, t,
                                     t == steps - 1, aux[bar]);
        count_step(&counted, &r, state.prev_equity, next.peak_equity);
        if (trace != 0) {
            trace[row] = alive ? r : dead_step();
        }
        state = alive ? next : state;
        tally = alive ? counted : tally;
        alive = alive && r.end == END_RUNNING;
        if (equity != 0) {
            equity[row] = state.portfolio_val;
        }
        now = nxt;
    }
    tally.totals.net_pnl = state.portfolio_val - p->initial_capital;
    totals[i] = tally.totals;
}

// The vector backtester. Nobody reads a reward here, so none is computed.
__kernel void portfolio_sim_kernel(const MarketParams params, __global const Bar *restrict bars,
                                   __global const float *restrict aux,
                                   __global const int *restrict start,       // [n], global bars
                                   __global const Target *restrict targets,  // [steps][n], units
                                   __global StrategyTotals *restrict totals, // [n]
                                   __global float *restrict equity, // [steps][n] or null, currency
                                   const int first_bar, const int n, const int steps)
{
    trade_targets(&params, bars, aux, start, targets, totals, equity, 0, first_bar, n, steps);
}

// The same with every result, reward included.
__kernel void portfolio_trace_kernel(const MarketParams params, __global const Bar *restrict bars,
                                     __global const float *restrict aux,
                                     __global const int *restrict start,
                                     __global const Target *restrict targets,
                                     __global StrategyTotals *restrict totals,
                                     __global float *restrict equity,
                                     __global StepResult *restrict trace, // [steps][n]
                                     const int first_bar, const int n, const int steps)
{
    trade_targets(&params, bars, aux, start, targets, totals, equity, trace, first_bar, n, steps);
}

// Actions in, every result and every state on the way out.
__kernel void action_sim_kernel(const MarketParams params, __global const Bar *restrict bars,
                                __global const float *restrict aux,
                                __global const int *restrict start,      // [n], global bars
                                __global const uchar4 *restrict actions, // [steps][n]
                                __global StepResult *restrict trace,     // [steps][n]
                                __global EpisodeState *restrict states,  // [steps + 1][n]
                                const int first_bar, const int n, const int steps)
{
    const size_t i = get_global_id(0);
    EpisodeState state = reset(&params);
    bool alive = true;
    int bar = start[i] - first_bar;
    states[i] = state;
    for (int t = 0; t < steps; t++, bar++) {
        const size_t row = (size_t)t * n + i;
        trace[row] = step_alive(&params, &state, &alive, convert_int4(actions[row]), bar_at(bars, bar),
                                bar_at(bars, bar + 1), t, t == steps - 1, aux[bar]);
        states[row + n] = state;
    }
}

// A uniform action from one random word: 4 directions x 3 magnitudes x 3 orders x 3 urgencies.
inline int4 random_action(const uint word)
{
    const uint pick = mul_hi(word, 108u);
    const uint rest = pick >> 2; // below 27, where x*11 >> 5 is x/3
    const uint third = rest * 11u >> 5;
    const uint ninth = third * 11u >> 5;
    return (int4)(pick & 3u, rest - 3u * third, third - 3u * ninth, ninth);
}

// The market alone, as fast as it goes, under random actions: one word of Philox a step.
__kernel void random_sim_kernel(const MarketParams params, __global const Bar *restrict bars,
                                __global const float *restrict aux,
                                __global const int *restrict start,    // [n], global bars
                                __global float *restrict rewards,      // [steps][n]
                                __global EpisodeState *restrict final, // [n]
                                const uint2 key, const uint stage_round, const int first_bar, const int n,
                                const int steps)
{
    const size_t i = get_global_id(0);
    EpisodeState state = reset(&params);
    bool alive = true;
    int bar = start[i] - first_bar;
    Bar now = bar_at(bars, bar);
    for (int block = 0; block < steps; block += 4) {
        uint4 words = philox4x32_10((uint4)(stage_round, (uint)i, (uint)block, 0u), key);
        for (int t = block; t < min(block + 4, steps); t++, bar++) {
            const Bar nxt = bar_at(bars, bar + 1);
            const StepResult r = step_alive(&params, &state, &alive, random_action(words.x), now, nxt, t,
                                            t == steps - 1, aux[bar]);
            rewards[(size_t)t * n + i] = r.reward;
            words = words.yzwx;
            now = nxt;
        }
    }
    final[i] = state;
}
