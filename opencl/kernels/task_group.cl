// The task bank's search for GPUs: a work-group and its TILE episodes.

// Slot of the task bank, MISS or ABSTAIN for each episode. Items own lane j % 64 of four episodes
// at a time; entry 0 is the query's square, entry n + 1 the dot product with key n. partial holds
// SEARCH_BLOCK entries of four episodes, a row of GROUP + 4 floats each; total is [SLOTS + 1][ROW].
inline void search_group(const Policy *p, __local const int *place, __local const float *f, const int t,
                         __local float *partial, __local float *total, __local int *slot)
{
    const int j = get_local_id(0);
    const int lane = j % 64;
    const int live = live_slots(p);
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
                __local float *mine = partial + (n - first) * 4 * (GROUP + 4) + j;
                mine[0] = sum.x;
                mine[GROUP + 4] = sum.y;
                mine[2 * (GROUP + 4)] = sum.z;
                mine[3 * (GROUP + 4)] = sum.w;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int i = j; i < SEARCH_BLOCK * 4 * (GROUP / 64); i += GROUP) {
                const int n = first + i / 4 % SEARCH_BLOCK;
                const int part = i / (4 * SEARCH_BLOCK);
                const int e = pass / 16 + 4 * part + i % 4;
                if (n <= live && e < TILE) {
                    __local const float *all_ = partial + i % (4 * SEARCH_BLOCK) * (GROUP + 4) + 64 * part;
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

// The search without the task context, as guess_lanes. Items own one episode each and every
// GROUP/TILE-th sum of total [SLOTS + GUESS + 1][ROW]. unsure becomes 1 where the guess of an episode
// does not hold. Ends behind a barrier.
inline void guess_group(const Policy *p, __local const int *place, __local const float *f, const int t,
                        __local float *total, __local int *slot, __local int *unsure)
{
    const int j = get_local_id(0);
    const int e = j % TILE;
    const int live = live_slots(p);
    float u[GUESS];
    for (int k = 0; k < N_PORTFOLIO; k++) {
        u[k] = f[k * ROW + e];
    }
    __global const float *row = p->table + (long)(place[e] + t) * BAR_ROW;
    for (int k = 0; k < N_CALENDAR; k++) {
        u[N_PORTFOLIO + k] = row[INPUT_AT + k];
    }
    u[GUESS - 1] = 1.0f;
    for (int n = j / TILE; n < SLOTS + GUESS && j < GROUP / TILE * TILE; n += GROUP / TILE) {
        if (n >= live && n < SLOTS) {
            continue;
        }
        float sum = 0.0f;
        for (int k = 0; k < GUESS; k++) {
            sum = fma(p->guess[n * GUESS + k], u[k], sum);
        }
        total[n * ROW + e] = sum;
    }
    if (j == 0) {
        *unsure = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (j < TILE) {
        float square = 0.0f;
        float size = 0.0f;
        for (int i = 0; i < GUESS; i++) {
            const float sum = total[(SLOTS + i) * ROW + j];
            square = fma(sum, sum, square);
            size = fma(p->guess[(SLOTS + GUESS) * GUESS + i], fabs(u[i]), size);
        }
        const float norm = sqrt(square);
        const float error = guess_error(size, norm);
        bool sure = square >= 4.0f * LEAST_SQUARE;
        Guess guess = guess_none();
        for (int n = 0; n < live; n++) {
            const float4 entry = p->entries[n];
            const float similarity = total[n * ROW + j] / (norm * entry.x);
            const bool hit = similarity >= entry.z + error;
            sure = sure && (hit || similarity < entry.z - error);
            if (hit) {
                guess = guess_partial(guess, similarity + entry.y, (int)entry.w);
            }
        }
        slot[j] = arg_max_slot(guess.best, p->disagree, SLOTS);
        if (!sure || !guess_holds(&guess, error)) {
            *unsure = 1;
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}
