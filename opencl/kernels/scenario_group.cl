// The scenario network up to the first trunk layer for GPUs: a work-group and its TILE episodes.
// Rows of the bar table as in queries_lanes.cl. Interpretations of CHUNK scenarios at a time pass
// through local memory.

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
// retrieved. unsure, h1 and room (ROOM_ROWS) are scratch. Ends behind a barrier.
inline void encode(const Policy *p, __local const int *place, __local const float *f, const int count,
                   const int t, __global float *past, __local int *slot, __local int *unsure,
                   __local hidden_t *h1, __local float *room)
{
    const int j = get_local_id(0);
    if (j < TILE) {
        slot[j] = MISS;
    }
#if SLOTS > 0
    if (p->entries != 0) {
        guess_group(p, place, f, t, room, slot, unsure);
        if (*unsure != 0) {
            search_group(p, place, f, t, h1, room, slot);
        }
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
