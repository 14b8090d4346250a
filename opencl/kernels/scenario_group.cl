// The scenario network up to the first trunk layer for GPUs, in float32. Rows of the bar table as in
// queries_lanes.cl. An item attends with an episode's three queries to the tokens of one scenario,
// so that it loads a token for all three. The interpretations of CHUNK scenarios lie in local
// memory, INTERPRETATION rows each (3 times LATENT_ROWS, the padding 0), the first CHUNK_IN_H of them
// in h, from where items add them to their sums of the first layer, as layers_group.cl does.

// Scores of one query over the tokens become exp(score - best); returns their sum.
inline float share(float *score)
{
#if TOP_K > 0
    float kept[HORIZON];
#pragma unroll HORIZON
    for (int h = 0; h < HORIZON; h++) { // equal scores rank by token, the lowest first
        int better = 0;
#pragma unroll HORIZON
        for (int i = 0; i < HORIZON; i++) {
            better += i < h ? score[i] >= score[h] : score[i] > score[h];
        }
        kept[h] = better < TOP_K ? score[h] : -INFINITY;
    }
#pragma unroll HORIZON
    for (int h = 0; h < HORIZON; h++) {
        score[h] = kept[h];
    }
#endif
    float top = score[0];
#pragma unroll HORIZON
    for (int h = 1; h < HORIZON; h++) {
        top = max(top, score[h]);
    }
    float den = 0.0f;
#pragma unroll HORIZON
    for (int h = 0; h < HORIZON; h++) {
        score[h] = exp(score[h] - top);
        den = den + score[h];
    }
    return den;
}

// Elements l to l + 3 of a vector of LATENT, 0 behind its end.
inline float4 load_latent(__global const float *x, const int l)
{
#if LATENT % 4 == 0
    return *(__global const float4 *)(x + l);
#else
    return (float4)(x[l], l + 1 < LATENT ? x[l + 1] : 0.0f, l + 2 < LATENT ? x[l + 2] : 0.0f,
                    l + 3 < LATENT ? x[l + 3] : 0.0f);
#endif
}

// The same of an episode's query of group g (0 balance, 1 position, 2 calendar) to scenario s, the
// skill's shift added, if any.
inline float4 query_latent(const Policy *p, __global const float *row, __local const float *f,
                           __global const float *shift, const int g, const int s, const int l)
{
    const int first = (g * SCENARIOS + s) * LATENT;
    float4 query;
    if (g == 2) {
        query = load_latent(row + CALENDAR_AT + s * LATENT, l);
    } else {
        __global const float *w = p->query + 8 * (first + l);
        const int mask = g == 0 ? BALANCE_MASK : POSITION_MASK;
        query.x = project(w, f, mask);
        query.y = l + 1 < LATENT ? project(w + 8, f, mask) : 0.0f;
        query.z = l + 2 < LATENT ? project(w + 16, f, mask) : 0.0f;
        query.w = l + 3 < LATENT ? project(w + 24, f, mask) : 0.0f;
    }
    return shift != 0 ? query + load_latent(shift + first, l) : query;
}

// Cross-attention of an episode's queries over the tokens of scenario s; f and out are its columns,
// out has INTERPRETATION rows.
inline void attend(const Policy *p, __global const float *row, __local const float *f,
                   __global const float *shift, const int s, __local float *out)
{
    __global const float *token = row + s * HORIZON * LATENT;
    float score[3][HORIZON];
#pragma unroll HORIZON
    for (int h = 0; h < HORIZON; h++) {
        score[0][h] = score[1][h] = score[2][h] = 0.0f;
    }
#pragma unroll 1
    for (int l = 0; l < LATENT; l += 4) {
        float4 query[3];
#pragma unroll 3
        for (int g = 0; g < 3; g++) {
            query[g] = query_latent(p, row, f, shift, g, s, l);
        }
#pragma unroll HORIZON
        for (int h = 0; h < HORIZON; h++) {
            const float4 x = load_latent(token + h * LATENT, l);
#pragma unroll 3
            for (int g = 0; g < 3; g++) {
                float sum = score[g][h];
                sum = fma(query[g].x, x.x, sum);
                sum = fma(query[g].y, x.y, sum);
                sum = fma(query[g].z, x.z, sum);
                score[g][h] = fma(query[g].w, x.w, sum);
            }
        }
    }
    const float scale = 1.0f / sqrt((float)LATENT);
    float whole[3];
#pragma unroll 3
    for (int g = 0; g < 3; g++) {
#pragma unroll HORIZON
        for (int h = 0; h < HORIZON; h++) {
            score[g][h] = score[g][h] * scale;
        }
        whole[g] = row[SHARE_AT + s] / share(score[g]);
    }
#pragma unroll 1
    for (int l = 0; l < LATENT; l += 4) {
        float4 sum[3];
        sum[0] = sum[1] = sum[2] = (float4)(0.0f);
#pragma unroll HORIZON
        for (int h = 0; h < HORIZON; h++) {
            const float4 x = load_latent(token + h * LATENT, l);
#pragma unroll 3
            for (int g = 0; g < 3; g++) {
                sum[g] = fma((float4)(score[g][h]), x, sum[g]);
            }
        }
#pragma unroll 3
        for (int g = 0; g < 3; g++) {
            __local float *to = out + (g * LATENT_ROWS + l) * ROW;
            to[0] = sum[g].x * whole[g];
            to[ROW] = sum[g].y * whole[g];
            to[2 * ROW] = sum[g].z * whole[g];
            to[3 * ROW] = sum[g].w * whole[g];
        }
    }
}

// Where the interpretation of scenario c of a chunk begins, in h or, from CHUNK_IN_H on, in room.
inline int interpretation_at(const int c)
{
    return (c < CHUNK_IN_H ? c : c - CHUNK_IN_H) * INTERPRETATION * ROW;
}

// The first layer of episodes at rows `place + t` of the table, rectified, into h.
// past [STACK - 1][HIDDEN1][TILE] as in scenario_lanes.cl; slot receives what the task bank
// retrieved. unsure and room (ROOM_ROWS) are scratch. Ends behind a barrier.
inline void encode(const Policy *p, __local const int *place, __local const float *f, const int count,
                   const int t, __global float *past, __local int *slot, __local int *unsure,
                   __local hidden_t *h, __local float *room)
{
    const int j = get_local_id(0);
    const int quad = 4 * (j % QUADS);
    const int column = j / QUADS; // and every SHARES-th from there
    search_task(p, place, f, t, slot, unsure, h, room);
    float4 sum[ENCODE_BLOCK];
#pragma unroll ENCODE_BLOCK
    for (int i = 0; i < ENCODE_BLOCK; i++) {
        const int neuron = min(column + i * SHARES, HIDDEN1 - 1);
        sum[i] = (float4)(p->b1[neuron]);
#if STACK > 1
        __global float *now = past + (t % (STACK - 1) * HIDDEN1 + neuron) * TILE + quad;
        sum[i] = sum[i] + *(__global float4 *)now;
        if (column + i * SHARES < HIDDEN1) {
            *(__global float4 *)now = (float4)(0.0f); // from here on that of step t + STACK - 1
        }
#endif
    }
    for (int s = 0; s < SCENARIOS; s += CHUNK) {
        const int chunk = min(CHUNK, SCENARIOS - s);
        for (int i = j; i < chunk * TILE; i += GROUP) {
            const int e = i % TILE;
            __global const float *shift = slot[e] >= 0 ? p->shift + (long)slot[e] * TASK_ROW : 0;
            __local float *out = (i / TILE < CHUNK_IN_H ? h : room) + interpretation_at(i / TILE) + e;
            attend(p, p->table + (long)(place[e] + t) * BAR_ROW, f + e, shift, s + i / TILE, out);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        // w1 is [STACK][SCENARIOS][INTERPRETATION/4][ENCODE_BLOCK*SHARES][4], the newest interpretation first
        __global const float4 *w = (__global const float4 *)p->w1 + s * (INTERPRETATION / 4) * ENCODE_BLOCK * SHARES;
        for (int c = 0; c < chunk; c++) {
            __local const float *seen = (c < CHUNK_IN_H ? h : room) + interpretation_at(c) + quad;
            add_block(sum, ENCODE_BLOCK, w + c * (INTERPRETATION / 4) * ENCODE_BLOCK * SHARES,
                      ENCODE_BLOCK * SHARES, column, SHARES, seen, INTERPRETATION);
        }
#if STACK > 1
        for (int age = 1; age < STACK; age++) {
            w = w + SCENARIOS * (INTERPRETATION / 4) * ENCODE_BLOCK * SHARES;
            __global float *later = past + (t + age) % (STACK - 1) * HIDDEN1 * TILE + quad;
            float4 more[ENCODE_BLOCK];
            for (int i = 0; i < ENCODE_BLOCK; i++) {
                more[i] = *(__global float4 *)(later + min(column + i * SHARES, HIDDEN1 - 1) * TILE);
            }
            for (int c = 0; c < chunk; c++) {
                __local const float *seen = (c < CHUNK_IN_H ? h : room) + interpretation_at(c) + quad;
                add_block(more, ENCODE_BLOCK, w + c * (INTERPRETATION / 4) * ENCODE_BLOCK * SHARES,
                          ENCODE_BLOCK * SHARES, column, SHARES, seen, INTERPRETATION);
            }
            for (int i = 0; i < ENCODE_BLOCK && column + i * SHARES < HIDDEN1; i++) {
                *(__global float4 *)(later + (column + i * SHARES) * TILE) = more[i];
            }
        }
#endif
        barrier(CLK_LOCAL_MEM_FENCE);
    }
#pragma unroll ENCODE_BLOCK
    for (int i = 0; i < ENCODE_BLOCK; i++) {
        if (column + i * SHARES < HIDDEN1) {
            *(__local float4 *)(h + (column + i * SHARES) * ROW + quad) = max(sum[i], (float4)(0.0f));
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}
