// Arguments and output rows that all rollout kernels share. Row (t, episode) is t*n + episode.

// What one policy's kernels read; what a network or a policy has no use for is null.
typedef struct {
    __global const float *table;     // [rows][BAR_ROW], what depends on the bar alone
    __global const char *found;      // [rows], slot of the step bank already in the table
    __global const float *query;     // [2*SCENARIOS*LATENT][8], bias and weights of a query element
    __global const float *w1;        // [W1_SIZE]
    __global const float *b1;        // [HIDDEN1]
    __global const float *w2;        // [W2_SIZE]
    __global const float *b2;        // [B2_SIZE]
    __global const float *w3;        // [W3_SIZE]
    __global const float *b3;        // [N_HEADS*HEAD]
    __global const float *z;         // [Z_SIZE]
    __global const float *alpha;     // [N_DIRECTION]
    __global const float *keys;      // [SLOTS][TASK_ROW] of the task bank, live slots first
    __global const float *center;    // [TASK_ROW]
    __global const float4 *entries;  // [SLOTS]: norm, bonus, threshold, slot (negative: no more)
    __global const uchar *disagree;  // [SLOTS][SLOTS]
    __global const float *shift;     // [SLOTS][TASK_ROW]
    __global const float *guess;     // [SLOTS + GUESS + 1][GUESS]: V, R, sizes of guess_lanes
} Policy;

// The parts of one policy among those of all.
inline Policy policy_at(const Part part, const long rows, __global const float *table,
                        __global const char *found, __global const float *query,
                        __global const float *w1, __global const float *b1, __global const float *w2,
                        __global const float *b2, __global const float *w3, __global const float *b3,
                        __global const float *z, __global const float *alpha,
                        __global const float *keys, __global const float *center,
                        __global const float4 *entries, __global const uchar *disagree,
                        __global const float *shift, __global const float *guess)
{
    const long w = part.weights;
    const long bank = max(part.bank, 0);
    Policy p;
    p.table = table + part.table * rows * BAR_ROW;
    p.found = found != 0 ? found + part.table * rows : 0;
    p.query = query + w * QUERY_SIZE;
    p.w1 = w1 + w * W1_SIZE;
    p.b1 = b1 + w * HIDDEN1;
    p.w2 = w2 + w * W2_SIZE;
    p.b2 = b2 + w * B2_SIZE;
    p.w3 = w3 + w * W3_SIZE;
    p.b3 = b3 + w * N_HEADS * HEAD;
    p.z = z + w * Z_SIZE;
    p.alpha = alpha + w * N_DIRECTION;
    p.keys = keys + bank * SLOTS * TASK_ROW;
    p.center = center + bank * TASK_ROW;
    p.entries = part.bank < 0 ? 0 : entries + bank * SLOTS;
    p.disagree = disagree + bank * SLOTS * SLOTS;
    p.shift = shift + bank * SLOTS * TASK_ROW;
    p.guess = guess + bank * (SLOTS + GUESS + 1) * GUESS;
    return p;
}

// The market of one policy: prices of its bars stand above its own base.
inline MarketParams market_of(MarketParams params, const Part part)
{
    params.base = part.base;
    return params;
}

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

// What both banks retrieved for a decision; a row without a decision retrieved nothing.
inline void record_slots(__global char2 *slots, const long row, const bool decided, const int task,
                         const Policy *p, const int bar_row)
{
    if (slots != 0) {
        const int step = decided && p->found != 0 ? p->found[bar_row] : MISS;
        slots[row] = (char2)((char)(decided ? task : MISS), (char)step);
    }
}

// The forecast's way around the network: values[a] += alpha[a]*forecast for the directions.
inline void bypass(float *values, __global const float *alpha, const float forecast)
{
    for (int a = 0; a < N_DIRECTION; a++) {
        values[a] = values[a] + forecast * alpha[a];
    }
}
