// The scenario network up to the first trunk layer for CPUs, LANES (16) episodes side by side. A row
// of the bar table as in queries_lanes.cl.

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
        lanes_t input[N_CALENDAR + 3];
        gather(row, INPUT_AT, N_CALENDAR, input);
        if (!guess_lanes(p, f, input, count, slot)) {
            search_lanes(p, context, count, slot);
        }
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
