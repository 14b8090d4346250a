// Arguments and output rows that both rollout kernels share. Row (t, episode) is t*n + episode.

// Record what a step did; trace and portfolio rows are optional (null pointers).
inline void record_step(__global uchar4 *actions, __global float *rewards, __global float *equity,
                        __global uchar *ends, __global StepResult *trace, const long row, const int4 action,
                        const StepResult *r)
{
    actions[row] = convert_uchar4(action);
    rewards[row] = r->reward;
    equity[row] = r->equity;
    ends[row] = (uchar)r->end;
    if (trace != 0) {
        trace[row] = *r;
    }
}

// portfolio is [steps + 1][N_PORTFOLIO][n]: neighbours write neighbours.
inline void record_portfolio(__global float *portfolio, const int t, const int n, const int episode,
                             const float *state)
{
    if (portfolio != 0) {
        for (int i = 0; i < N_PORTFOLIO; i++) {
            portfolio[((long)t * N_PORTFOLIO + i) * n + episode] = state[i];
        }
    }
}
