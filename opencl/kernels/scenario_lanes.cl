// The scenario network up to the first trunk layer for CPUs, LANES (16) episodes side by side.
// A row of the bar table: tokens [SCENARIOS][HORIZON][LATENT], calendar queries
// [SCENARIOS][LATENT] from CALENDAR_AT on, scenario weights [SCENARIOS] from SHARE_AT on.

// Four floats of each of 16 rows, turned: out[k] holds float `at + k` of every row.
inline void gather_4(__global const float *const *row, const int at, lanes_t *out)
{
    float8 half_[2][4];
    for (int i = 0; i < 2; i++) {
        __global const float *const *r = row + 8 * i;
        const float8 a = (float8)(vload4(0, r[0] + at), vload4(0, r[4] + at));
        const float8 b = (float8)(vload4(0, r[1] + at), vload4(0, r[5] + at));
        const float8 c = (float8)(vload4(0, r[2] + at), vload4(0, r[6] + at));
        const float8 d = (float8)(vload4(0, r[3] + at), vload4(0, r[7] + at));
        const float8 ab = (float8)(a.s0, b.s0, a.s1, b.s1, a.s4, b.s4, a.s5, b.s5);
        const float8 cd = (float8)(c.s0, d.s0, c.s1, d.s1, c.s4, d.s4, c.s5, d.s5);
        const float8 ab2 = (float8)(a.s2, b.s2, a.s3, b.s3, a.s6, b.s6, a.s7, b.s7);
        const float8 cd2 = (float8)(c.s2, d.s2, c.s3, d.s3, c.s6, d.s6, c.s7, d.s7);
        half_[i][0] = (float8)(ab.s01, cd.s01, ab.s45, cd.s45);
        half_[i][1] = (float8)(ab.s23, cd.s23, ab.s67, cd.s67);
        half_[i][2] = (float8)(ab2.s01, cd2.s01, ab2.s45, cd2.s45);
        half_[i][3] = (float8)(ab2.s23, cd2.s23, ab2.s67, cd2.s67);
    }
    for (int k = 0; k < 4; k++) {
        out[k] = (lanes_t)(half_[0][k], half_[1][k]);
    }
}

// A run of n floats of each row; out has room for the next multiple of 4.
inline void gather(__global const float *const *row, const int at, const int n, lanes_t *out)
{
    for (int k = 0; k < n; k += 4) {
        gather_4(row, at + k, out + k);
    }
}

// One query element: a bias and the weights of those portfolio floats whose bit is set in mask.
inline lanes_t project_lanes(__global const float *w, const lanes_t *f, const int mask)
{
    lanes_t sum = (lanes_t)(w[0]);
    int next = 1;
    for (int k = 0; k < N_PORTFOLIO; k++) {
        if (mask >> k & 1) {
            sum = fma((lanes_t)(w[next]), f[k], sum);
            next++;
        }
    }
    return sum;
}

// The task context [3][SCENARIOS][LATENT]: queries of balance, position and calendar.
inline void task_context(const Policy *p, __global const float *const *row, const lanes_t *f,
                         lanes_t *context)
{
    const int n = SCENARIOS * LATENT;
    for (int e = 0; e < n; e++) {
        context[e] = project_lanes(p->query + 8 * e, f, BALANCE_MASK);
        context[n + e] = project_lanes(p->query + 8 * (n + e), f, POSITION_MASK);
    }
    gather(row, CALENDAR_AT, n, context + 2 * n);
}

// Scores of one query over the tokens become exp(score - best); returns their sum.
inline lanes_t share_lanes(lanes_t *score)
{
#if TOP_K > 0
    lanes_t kept[HORIZON];
    for (int h = 0; h < HORIZON; h++) { // equal scores rank by token, the lowest first
        int16 better = (int16)(0);
        for (int i = 0; i < HORIZON; i++) {
            better = better - (i < h ? score[i] >= score[h] : score[i] > score[h]);
        }
        kept[h] = select((lanes_t)(-INFINITY), score[h], better < TOP_K);
    }
    for (int h = 0; h < HORIZON; h++) {
        score[h] = kept[h];
    }
#endif
    lanes_t top = score[0];
    for (int h = 1; h < HORIZON; h++) {
        top = fmax(top, score[h]);
    }
    lanes_t den = (lanes_t)(0.0f);
    for (int h = 0; h < HORIZON; h++) {
        score[h] = exp(score[h] - top);
        den = den + score[h];
    }
    return den;
}

// Cross-attention of one query [LATENT] over one scenario's tokens [HORIZON][LATENT].
inline void attend_lanes(const lanes_t *query, const lanes_t *token, const lanes_t weight, lanes_t *out)
{
    lanes_t score[HORIZON];
    const float scale = 1.0f / sqrt((float)LATENT);
    for (int h = 0; h < HORIZON; h++) {
        lanes_t sum = (lanes_t)(0.0f);
        for (int l = 0; l < LATENT; l++) {
            sum = fma(query[l], token[h * LATENT + l], sum);
        }
        score[h] = sum * scale;
    }
    const lanes_t whole = weight / share_lanes(score);
    for (int l = 0; l < LATENT; l++) {
        lanes_t sum = (lanes_t)(0.0f);
        for (int h = 0; h < HORIZON; h++) {
            sum = fma(score[h], token[h * LATENT + l], sum);
        }
        out[l] = sum * whole;
    }
}

#if SLOTS > 0
// c with its 6 bits in the reverse order.
inline int reverse_6(const int c)
{
    return (c & 1) << 5 | (c & 2) << 3 | (c & 4) << 1 | (c & 8) >> 1 | (c & 16) >> 3 | (c & 32) >> 5;
}

// Add lane reverse_6(c) of n sums to their trees of lanes; after c = 63 level 6 holds the totals,
// added in the order of lanes_sum. tree is [7][SLOTS + 1], part [SLOTS + 1] is scratch afterwards.
inline void climb(lanes_t *tree, const int n, const int c, lanes_t *part)
{
    int level = 0;
    for (; c >> level & 1; level++) {
        for (int i = 0; i < n; i++) {
            part[i] = tree[level * (SLOTS + 1) + i] + part[i];
        }
    }
    for (int i = 0; i < n; i++) {
        tree[level * (SLOTS + 1) + i] = part[i];
    }
}

// Slot of the task bank, MISS or ABSTAIN for each of the first count episodes.
inline void search_lanes(const Policy *p, const lanes_t *context, const int count, int *slot)
{
    lanes_t tree[7 * (SLOTS + 1)]; // sum 0: the query's square; sum n + 1: its product with key n
    lanes_t part[SLOTS + 1];
    int live = 0;
    while (live < SLOTS && p->entries[live].w >= 0.0f) {
        live++;
    }
    for (int c = 0; c < 64; c++) {
        const int lane = reverse_6(c);
        lanes_t x[TASK_ROUNDS];
        lanes_t square = (lanes_t)(0.0f);
        for (int r = 0; r < TASK_ROUNDS; r++) {
            const int e = lane + 64 * r;
            x[r] = e < TASK_DIM ? context[e] - p->center[e] : (lanes_t)(0.0f);
            square = square + x[r] * x[r];
        }
        part[0] = square;
        int n = 0;
        for (; n + 4 <= live; n += 4) { // keys are [SLOTS/4][64][TASK_ROUNDS][4]
            __global const float *key = p->keys + (n * 64 + lane * 4) * TASK_ROUNDS;
            lanes_t s0 = (lanes_t)(0.0f);
            lanes_t s1 = (lanes_t)(0.0f);
            lanes_t s2 = (lanes_t)(0.0f);
            lanes_t s3 = (lanes_t)(0.0f);
            for (int r = 0; r < TASK_ROUNDS; r++) {
                s0 = s0 + x[r] * key[4 * r];
                s1 = s1 + x[r] * key[4 * r + 1];
                s2 = s2 + x[r] * key[4 * r + 2];
                s3 = s3 + x[r] * key[4 * r + 3];
            }
            part[n + 1] = s0;
            part[n + 2] = s1;
            part[n + 3] = s2;
            part[n + 4] = s3;
        }
        for (; n < live; n++) {
            __global const float *key = p->keys + ((n & ~3) * 64 + lane * 4) * TASK_ROUNDS + (n & 3);
            lanes_t sum = (lanes_t)(0.0f);
            for (int r = 0; r < TASK_ROUNDS; r++) {
                sum = sum + x[r] * key[4 * r];
            }
            part[n + 1] = sum;
        }
        climb(tree, live + 1, c, part);
    }
    const lanes_t *total = tree + 6 * (SLOTS + 1);
    const lanes_t norm = sqrt(total[0]);
    Best best[LANES];
    for (int i = 0; i < LANES; i++) {
        best[i] = best_none();
    }
    for (int n = 0; n < live; n++) { // score_finalize and arg_max_partial for all episodes
        const float4 entry = p->entries[n];
        const lanes_t similarity = total[n + 1] / (norm * entry.x);
        const int16 hit = total[0] >= LEAST_SQUARE && similarity >= entry.z;
        for (int i = 0; any(hit) && i < count; i++) {
            if (((const int *)&hit)[i] != 0) {
                const float score = ((const float *)&similarity)[i] + entry.y;
                best[i] = arg_max_partial(best[i], score, (int)entry.w);
            }
        }
    }
    for (int i = 0; i < count; i++) {
        slot[i] = arg_max_slot(best[i], p->disagree, SLOTS);
    }
}

// context += shift of the slot for the episodes that retrieved one; the others keep their bits.
inline void correct_lanes(const Policy *p, const int *slot, lanes_t *context)
{
    for (int i = 0; i < LANES; i++) {
        __global const float *d = p->shift + (long)max(slot[i], 0) * TASK_ROW;
        for (int e = 0; slot[i] >= 0 && e < TASK_DIM; e++) {
            ((float *)&context[e])[i] = ((const float *)&context[e])[i] + d[e];
        }
    }
}
#endif

// The first layer of episodes at rows `row + t` of the table, rectified, into a [HIDDEN1].
// past [STACK - 1][HIDDEN1] holds what earlier steps add to the layer of later ones: step u's at
// u mod (STACK - 1). slot receives what the task bank retrieved for each episode.
inline void encode(const Policy *p, const int *place, const lanes_t *f, const int count, const int t,
                   lanes_t *past, int *slot, lanes_t *a)
{
    __global const float *row[LANES];
    lanes_t context[TASK_ROW];
    lanes_t weight[SCENARIOS + 3];
    for (int i = 0; i < LANES; i++) {
        row[i] = p->table + (long)(place[i] + t) * BAR_ROW;
        slot[i] = MISS;
    }
    task_context(p, row, f, context);
#if SLOTS > 0
    if (p->entries != 0) {
        search_lanes(p, context, count, slot);
        correct_lanes(p, slot, context);
    }
#endif
    gather(row, SHARE_AT, SCENARIOS, weight);
    for (int j = 0; j < HIDDEN1; j++) {
        a[j] = (lanes_t)(p->b1[j]);
    }
#if STACK > 1
    lanes_t *now = past + t % (STACK - 1) * HIDDEN1;
    for (int j = 0; j < HIDDEN1; j++) {
        a[j] = a[j] + now[j];
        now[j] = (lanes_t)(0.0f); // from here on that of step t + STACK - 1
    }
#endif
    for (int s = 0; s < SCENARIOS; s++) {
        lanes_t token[HORIZON * LATENT + 3];
        lanes_t seen[3 * LATENT];
        gather(row, s * HORIZON * LATENT, HORIZON * LATENT, token);
        for (int g = 0; g < 3; g++) {
            attend_lanes(context + (g * SCENARIOS + s) * LATENT, token, weight[s], seen + g * LATENT);
        }
        // w1 is [STACK][SCENARIOS][HIDDEN1][3*LATENT], the newest interpretation first
        add_lanes(p->w1 + s * HIDDEN1 * 3 * LATENT, seen, 3 * LATENT, a, HIDDEN1);
#if STACK > 1
        for (int age = 1; age < STACK; age++) {
            add_lanes(p->w1 + (age * SCENARIOS + s) * HIDDEN1 * 3 * LATENT, seen, 3 * LATENT,
                      past + (t + age) % (STACK - 1) * HIDDEN1, HIDDEN1);
        }
#endif
    }
    relu_lanes(a, HIDDEN1);
}
