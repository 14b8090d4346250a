// Rollout for CPUs: one work-item walks LANES episodes side by side, activations in vectors.

typedef float16 lanes_t; // LANES floats

// out[j] = act(bias[j] + sum_k weight[j][k] * in[k]) for LANES episodes; four outputs at a time
// so that one load of in[k] feeds four multiply-adds. n_out is a multiple of 4 (the host pads).
inline void dense_lanes(__global const float *restrict weight, __global const float *restrict bias,
                        const lanes_t *in, const int n_in, lanes_t *out, const int n_out)
{
    for (int j = 0; j < n_out; j += 4) {
        lanes_t s0 = (lanes_t)(bias[j]);
        lanes_t s1 = (lanes_t)(bias[j + 1]);
        lanes_t s2 = (lanes_t)(bias[j + 2]);
        lanes_t s3 = (lanes_t)(bias[j + 3]);
        __global const float *w = weight + (long)j * n_in;
        for (int k = 0; k < n_in; k++) {
            const lanes_t x = in[k];
            s0 = fma((lanes_t)(w[k]), x, s0);
            s1 = fma((lanes_t)(w[k + n_in]), x, s1);
            s2 = fma((lanes_t)(w[k + 2 * n_in]), x, s2);
            s3 = fma((lanes_t)(w[k + 3 * n_in]), x, s3);
        }
        out[j] = s0;
        out[j + 1] = s1;
        out[j + 2] = s2;
        out[j + 3] = s3;
    }
}

// Expected value of one action's return distribution: sum softmax(logits)*z.
inline lanes_t expected_lanes(const lanes_t *logits, __global const float *z)
{
    lanes_t top = logits[0];
    for (int i = 1; i < ATOMS; i++) {
        top = fmax(top, logits[i]);
    }
    lanes_t num = (lanes_t)(0.0f);
    lanes_t den = (lanes_t)(0.0f);
    for (int i = 0; i < ATOMS; i++) {
        const lanes_t e = exp(logits[i] - top);
        num = fma(e, (lanes_t)(z[i]), num);
        den = den + e;
    }
    return num / den;
}

__kernel void rollout_lanes(
    const MarketParams params,
    __global const Bar *restrict bars,     // [bars]
    __global const float *restrict aux,    // [bars]
    __global const float *restrict hidden, // [policies][bars][HIDDEN1]
    __global const float *restrict w1,     // [policies][HIDDEN1][N_PORTFOLIO]
    __global const float *restrict w2,     // [policies][HIDDEN2][HIDDEN1]
    __global const float *restrict b2,     // [policies][HIDDEN2]
    __global const float *restrict w3,     // [policies][N_HEADS][HEAD][HIDDEN2]
    __global const float *restrict b3,     // [policies][N_HEADS][HEAD]
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
    const int tiles = (per_policy + LANES - 1) / LANES;
    const int policy = get_global_id(0) / tiles;
    const int first = (get_global_id(0) % tiles) * LANES; // episode within the policy
    const int count = min(LANES, per_policy - first);
    __global const float *my_hidden = hidden + (long)policy * n_bars * HIDDEN1;
    __global const float *my_z = z + policy * ATOMS;
    EpisodeState state[LANES];
    bool alive[LANES];
    for (int i = 0; i < LANES; i++) {
        state[i] = reset(&params);
        alive[i] = i < count;
    }
    lanes_t a[HIDDEN1 > HIDDEN2 ? HIDDEN1 : HIDDEN2];
    lanes_t b[HIDDEN2];
    lanes_t f[N_PORTFOLIO];
    lanes_t logits[HEAD];
    lanes_t q[N_HEADS];
    for (int t = 0; t <= steps; t++) {
        for (int i = 0; i < LANES; i++) {
            const int episode = policy * per_policy + first + min(i, count - 1);
            const int bar = start[episode] + t - first_bar;
            float own[N_PORTFOLIO];
            portfolio_state(&params, &state[i], bars[bar], t, own);
            for (int k = 0; k < N_PORTFOLIO; k++) {
                ((float *)&f[k])[i] = own[k];
            }
            if (i < count) {
                record_portfolio(portfolio, t, n, episode, own);
            }
            if (t < steps) {
                for (int j = 0; j < HIDDEN1; j++) {
                    ((float *)&a[j])[i] = my_hidden[(long)bar * HIDDEN1 + j];
                }
            }
        }
        if (t == steps) {
            break;
        }
        for (int j = 0; j < HIDDEN1; j++) {
            lanes_t sum = a[j];
            for (int k = 0; k < N_PORTFOLIO; k++) {
                sum = fma((lanes_t)(w1[(policy * HIDDEN1 + j) * N_PORTFOLIO + k]), f[k], sum);
            }
            a[j] = fmax(sum, (lanes_t)(0.0f));
        }
        dense_lanes(w2 + (long)policy * HIDDEN2 * HIDDEN1, b2 + policy * HIDDEN2, a, HIDDEN1, b, HIDDEN2);
        for (int j = 0; j < HIDDEN2; j++) {
            b[j] = fmax(b[j], (lanes_t)(0.0f));
        }
        for (int h = 0; h < N_HEADS; h++) {
            const long head = (long)policy * N_HEADS + h;
            dense_lanes(w3 + head * HEAD * HIDDEN2, b3 + head * HEAD, b, HIDDEN2, logits, HEAD);
            q[h] = expected_lanes(logits, my_z);
        }
        for (int i = 0; i < count; i++) {
            const int id = first + i;
            const int episode = policy * per_policy + id;
            const long row = (long)t * n + episode;
            float own[N_HEADS];
            for (int h = 0; h < N_HEADS; h++) {
                own[h] = ((const float *)&q[h])[i];
                if (values != 0) {
                    values[row * N_HEADS + h] = own[h];
                }
            }
            int4 action = (int4)(0);
            StepResult r = dead_step();
            if (alive[i]) {
                const int bar = start[episode] + t - first_bar;
                action = choose(own, epsilon, keys[policy], stage_round, (uint)id, (uint)t);
                r = step(&params, &state[i], action, bars[bar], bars[bar + 1], t, t == steps - 1, aux[bar]);
                alive[i] = r.end == END_RUNNING;
            }
            record_step(actions, rewards, equity, ends, trace, row, action, &r);
        }
    }
}
