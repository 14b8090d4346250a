// The scenario network up to the first trunk layer for GPUs: a work-group and its TILE episodes.
// The bar table's rows as in scenario_lanes.cl. Interpretations of CHUNK scenarios at a time pass
// through local memory; the task context is never stored, its elements are computed where used.

// One query element of one episode: a bias and the weights of those portfolio floats whose bit is
// set in mask; f is the episode's column.
inline float project(__global const float *w, __local const float *f, const int mask)
{
    float sum = w[0];
    int next = 1;
    for (int k = 0; k < N_PORTFOLIO; k++) {
        if (mask >> k & 1) {
            sum = fma(w[next], f[k * ROW], sum);
            next++;
        }
    }
    return sum;
}

// Element e of an episode's task context [3][SCENARIOS][LATENT]; row is that of its bar.
inline float query_element(const Policy *p, __global const float *row, __local const float *f, const int e)
{
    const int n = SCENARIOS * LATENT;
    if (e >= 2 * n) {
        return row[CALENDAR_AT + e - 2 * n];
    }
    return e < n ? project(p->query + 8 * e, f, BALANCE_MASK) : project(p->query + 8 * e, f, POSITION_MASK);
}

// Scores of one query over the tokens become exp(score - best); returns their sum.
inline float share(float *score)
{
#if TOP_K > 0
    float kept[HORIZON];
    for (int h = 0; h < HORIZON; h++) { // equal scores rank by token, the lowest first
        int better = 0;
        for (int i = 0; i < HORIZON; i++) {
            better += i < h ? score[i] >= score[h] : score[i] > score[h];
        }
        kept[h] = better < TOP_K ? score[h] : -INFINITY;
    }
    for (int h = 0; h < HORIZON; h++) {
        score[h] = kept[h];
    }
#endif
    float top = score[0];
    for (int h = 1; h < HORIZON; h++) {
        top = max(top, score[h]);
    }
    float den = 0.0f;
    for (int h = 0; h < HORIZON; h++) {
        score[h] = exp(score[h] - top);
        den = den + score[h];
    }
    return den;
}

// Cross-attention of one query over one scenario's tokens [HORIZON][LATENT]; out is a column.
inline void attend(const float *query, __global const float *token, const float weight, __local float *out)
{
    float score[HORIZON];
    const float scale = 1.0f / sqrt((float)LATENT);
    for (int h = 0; h < HORIZON; h++) {
        float sum = 0.0f;
        for (int l = 0; l < LATENT; l++) {
            sum = fma(query[l], token[h * LATENT + l], sum);
        }
        score[h] = sum * scale;
    }
    const float whole = weight / share(score);
    for (int l = 0; l < LATENT; l++) {
        float sum = 0.0f;
        for (int h = 0; h < HORIZON; h++) {
            sum = fma(score[h], token[h * LATENT + l], sum);
        }
        out[l * ROW] = sum * whole;
    }
}

#if SLOTS > 0
// Slot of the task bank, MISS or ABSTAIN for each episode. Items own lane j % 64 of four episodes
// at a time; entry 0 is the query's square, entry n + 1 the dot product with key n. partial holds
// SEARCH_BLOCK entries of four episodes, a row of GROUP + 1 floats each; total is [SLOTS + 1][ROW].
inline void search_group(const Policy *p, __local const int *place, __local const float *f, const int count,
                         const int t, __local float *partial, __local float *total, __local int *slot)
{
    const int j = get_local_id(0);
    const int lane = j % 64;
    int live = 0;
    while (live < SLOTS && p->entries[live].w >= 0.0f) {
        live++;
    }
    for (int pass = 0; pass < 64 * (TILE / 4); pass += GROUP) {
        const int e0 = (pass + j) / 64 * 4; // surplus items have none
        float4 x[TASK_ROUNDS];
        for (int r = 0; r < TASK_ROUNDS; r++) {
            const int e = lane + 64 * r;
            x[r] = (float4)(0.0f);
            if (e < TASK_DIM && e0 < TILE) {
                float mine[4];
                for (int i = 0; i < 4; i++) {
                    __global const float *row = p->table + (long)(place[e0 + i] + t) * BAR_ROW;
                    mine[i] = query_element(p, row, f + e0 + i, e);
                }
                x[r] = (float4)(mine[0], mine[1], mine[2], mine[3]) - p->center[e];
            }
        }
        for (int first = 0; first <= live; first += SEARCH_BLOCK) {
            for (int n = first; n <= live && n < first + SEARCH_BLOCK; n++) {
                float4 sum = (float4)(0.0f);
                for (int r = 0; r < TASK_ROUNDS; r++) { // keys are [SLOTS][TASK_ROW]
                    const float4 key = n == 0 ? x[r] : (float4)(p->keys[(n - 1) * TASK_ROW + 64 * r + lane]);
                    sum = sum + x[r] * key;
                }
                __local float *mine = partial + (n - first) * 4 * (GROUP + 1) + j;
                mine[0] = sum.x;
                mine[GROUP + 1] = sum.y;
                mine[2 * (GROUP + 1)] = sum.z;
                mine[3 * (GROUP + 1)] = sum.w;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int i = j; i < SEARCH_BLOCK * 4 * (GROUP / 64); i += GROUP) {
                const int n = first + i / 4 % SEARCH_BLOCK;
                const int part = i / (4 * SEARCH_BLOCK);
                const int e = pass / 16 + 4 * part + i % 4;
                if (n <= live && e < TILE) {
                    __local const float *all_ = partial + i % (4 * SEARCH_BLOCK) * (GROUP + 1) + 64 * part;
                    total[n * ROW + e] = lanes_total(all_);
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    }
    if (j < TILE) {
        Best best = best_none();
        for (int n = 0; n < live; n++) {
            const float4 entry = p->entries[n];
            const float dot_ = total[(n + 1) * ROW + j];
            const float score = score_finalize(dot_, total[j], entry.x, 1, entry.y, entry.z);
            best = arg_max_partial(best, score, (int)entry.w);
        }
        slot[j] = arg_max_slot(best, p->disagree, SLOTS);
    }
}
#endif

// sum[e] += weight[k][neuron] * in[k][e] over n inputs, from and to a row of local memory.
inline void add_row(__local float *row, __global const float *weight, __local const float *in, const int n,
                    const float least)
{
    float sum[TILE];
    for (int e = 0; e < TILE; e += 4) {
        vstore4(*(__local const float4 *)(row + e), 0, sum + e);
    }
    for (int k = 0; k < n; k++) {
        accumulate(sum, weight[k * HIDDEN1], in + k * ROW);
    }
    store_row(row, sum, least);
}

// The first layer of episodes at rows `place + t` of the table, rectified, into h1 [HIDDEN1][ROW].
// past [STACK - 1][HIDDEN1][TILE] as in scenario_lanes.cl; slot receives what the task bank
// retrieved. h1 and room (3*LATENT*CHUNK rows) are scratch. Ends behind a barrier.
inline void encode(const Policy *p, __local const int *place, __local const float *f, const int count,
                   const int t, __global float *past, __local int *slot, __local float *h1,
                   __local float *room)
{
    const int j = get_local_id(0);
    if (j < TILE) {
        slot[j] = MISS;
    }
#if SLOTS > 0
    if (p->entries != 0) {
        search_group(p, place, f, count, t, h1, room, slot);
    }
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int neuron = j; neuron < HIDDEN1; neuron += GROUP) {
        for (int e = 0; e < TILE; e++) {
            float first = p->b1[neuron];
#if STACK > 1
            __global float *now = past + (t % (STACK - 1) * HIDDEN1 + neuron) * TILE + e;
            first = first + *now;
            *now = 0.0f; // from here on that of step t + STACK - 1
#endif
            h1[neuron * ROW + e] = first;
        }
    }
    for (int s = 0; s < SCENARIOS; s += CHUNK) {
        const int chunk = min(CHUNK, SCENARIOS - s);
        for (int i = j; i < chunk * 3 * TILE; i += GROUP) {
            const int e = i % TILE;
            const int g = i / TILE % 3;
            const int mine = s + i / (3 * TILE);
            __global const float *row = p->table + (long)(place[e] + t) * BAR_ROW;
            const int first = (g * SCENARIOS + mine) * LATENT;
            float query[LATENT];
            for (int l = 0; l < LATENT; l++) {
                query[l] = query_element(p, row, f + e, first + l);
            }
#if SLOTS > 0
            if (slot[e] >= 0) {
                for (int l = 0; l < LATENT; l++) {
                    query[l] = query[l] + p->shift[(long)slot[e] * TASK_ROW + first + l];
                }
            }
#endif
            attend(query, row + mine * HORIZON * LATENT, row[SHARE_AT + mine],
                   room + i / TILE * LATENT * ROW + e);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        // w1 is [STACK][SCENARIOS][3*LATENT][HIDDEN1], the newest interpretation first
        for (int neuron = j; neuron < HIDDEN1; neuron += GROUP) {
            __global const float *w = p->w1 + (long)s * 3 * LATENT * HIDDEN1 + neuron;
            const bool last = s + CHUNK >= SCENARIOS;
            add_row(h1 + neuron * ROW, w, room, 3 * LATENT * chunk, last ? 0.0f : -INFINITY);
#if STACK > 1
            for (int age = 1; age < STACK; age++) {
                __global float *later = past + ((t + age) % (STACK - 1) * HIDDEN1 + neuron) * TILE;
                float sum[TILE];
                for (int e = 0; e < TILE; e++) {
                    sum[e] = later[e];
                }
                for (int k = 0; k < 3 * LATENT * chunk; k++) {
                    const float weight = w[((long)age * SCENARIOS * 3 * LATENT + k) * HIDDEN1];
                    accumulate(sum, weight, room + k * ROW);
                }
                for (int e = 0; e < TILE; e++) {
                    later[e] = sum[e];
                }
            }
#endif
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
