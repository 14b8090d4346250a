// The task bank's search for GPUs: a work-group and its TILE episodes. Its TEAMS of 64 items share
// ordered sums, each of four episodes at a time.

#if SLOTS > 0
// Slot of the task bank, MISS or ABSTAIN, for `count` episodes, those in the list. Entry 0 is the
// query's square, entry n + 1 the dot product with key n. partial holds SEARCH_BLOCK entries of four
// episodes, a row of 64*TEAMS + 4 floats each; total is [SLOTS + 1][ROW], by place in the list.
inline void search_group(const Policy *p, __local const int *place, __local const float *f, const int t,
                         __local const int *list, const int count, __local float *partial,
                         __local float *total, __local int *slot)
{
    const int j = get_local_id(0);
    const int lane = j % 64;
    const int live = live_slots(p);
    const int row = 64 * TEAMS + 4;
    for (int begin = 0; begin < count; begin += 4 * TEAMS) {
        const int mine = j < 64 * TEAMS ? begin + j / 64 * 4 : count; // count: nothing to do
        float4 x[TASK_ROUNDS];
        for (int r = 0; r < TASK_ROUNDS; r++) {
            const int k = lane + 64 * r;
            x[r] = (float4)(0.0f);
            if (k < TASK_DIM && mine < count) {
                float own[4];
                for (int i = 0; i < 4; i++) {
                    const int e = list[min(mine + i, count - 1)];
                    own[i] = query_element(p, p->table + (long)(place[e] + t) * BAR_ROW, f + e, k);
                }
                x[r] = (float4)(own[0], own[1], own[2], own[3]) - p->center[k];
            }
        }
        for (int first = 0; first <= live; first += SEARCH_BLOCK) {
            for (int n = first; mine < count && n <= live && n < first + SEARCH_BLOCK; n++) {
                float4 sum = (float4)(0.0f);
                for (int r = 0; r < TASK_ROUNDS; r++) { // keys are [SLOTS][TASK_ROW]
                    const float4 key = n == 0 ? x[r] : (float4)(p->keys[(n - 1) * TASK_ROW + 64 * r + lane]);
                    sum = sum + x[r] * key;
                }
                __local float *to = partial + (n - first) * 4 * row + j;
                to[0] = sum.x;
                to[row] = sum.y;
                to[2 * row] = sum.z;
                to[3 * row] = sum.w;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int i = j; i < SEARCH_BLOCK * 4 * TEAMS; i += GROUP) {
                const int n = first + i / 4 % SEARCH_BLOCK;
                const int team = i / (4 * SEARCH_BLOCK);
                const int e = begin + 4 * team + i % 4;
                if (n <= live && e < count) {
                    total[n * ROW + e] = lanes_total(partial + i % (4 * SEARCH_BLOCK) * row + 64 * team);
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    }
    if (j < count) {
        Best best = best_none();
        for (int n = 0; n < live; n++) {
            const float4 entry = p->entries[n];
            const float dot_ = total[(n + 1) * ROW + j];
            const float score = score_finalize(dot_, total[j], entry.x, 1, entry.y, entry.z);
            best = arg_max_partial(best, score, (int)entry.w);
        }
        slot[list[j]] = arg_max_slot(best, p->disagree, SLOTS);
    }
}

#if GUESS % 4 != 0
#error "guess_sum reads four numbers at a time"
#endif

// Row n of what a guess knows, times u.
inline float guess_sum(const Policy *p, const int n, const float *u)
{
    __global const float4 *row = (__global const float4 *)(p->guess + n * GUESS);
    float4 sum = (float4)(0.0f);
#pragma unroll GUESS
    for (int k = 0; k < GUESS; k += 4) {
        sum = fma(row[k / 4], (float4)(u[k], u[k + 1], u[k + 2], u[k + 3]), sum);
    }
    return (sum.x + sum.y) + (sum.z + sum.w);
}

// The search without the task context, as guess_lanes, for all episodes. Items own one episode each,
// every GROUP/TILE-th sum of total [SLOTS + GUESS][ROW], and every GROUP/TILE-th cosine, which takes
// the place of a sum. The episodes whose guess does not hold, `unsure` of them, are listed in any
// order. Ends behind a barrier.
inline void guess_group(const Policy *p, __local const int *place, __local const float *f, const int t,
                        __local float *total, __local int *slot, __local int *list, __local int *unsure)
{
    const int j = get_local_id(0);
    const int e = j % TILE;
    const int first = j < GROUP / TILE * TILE ? j / TILE : SLOTS + GUESS; // surplus items: nothing
    const int live = live_slots(p);
    float u[GUESS];
#pragma unroll N_PORTFOLIO
    for (int k = 0; k < N_PORTFOLIO; k++) {
        u[k] = f[k * ROW + e];
    }
    __global const float *row = p->table + (long)(place[e] + t) * BAR_ROW;
#pragma unroll N_CALENDAR
    for (int k = 0; k < N_CALENDAR; k++) {
        u[N_PORTFOLIO + k] = row[INPUT_AT + k];
    }
    u[GUESS - 1] = 1.0f;
#pragma unroll 4
    for (int n = first; n < SLOTS + GUESS; n += GROUP / TILE) { // slots that are not live hold 0
        total[n * ROW + e] = guess_sum(p, n, u);
    }
    if (j == 0) {
        *unsure = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float square = 0.0f;
    float size = 0.0f;
#pragma unroll GUESS
    for (int i = 0; i < GUESS; i++) {
        const float sum = total[(SLOTS + i) * ROW + e];
        square = fma(sum, sum, square);
        size = fma(p->guess[(SLOTS + GUESS) * GUESS + i], fabs(u[i]), size);
    }
    const float norm = sqrt(square);
#pragma unroll 4
    for (int n = first; n < live; n += GROUP / TILE) {
        total[n * ROW + e] = total[n * ROW + e] / (norm * p->entries[n].x);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (j < TILE) {
        const float error = guess_error(size, norm);
        bool sure = square >= 4.0f * LEAST_SQUARE;
        Guess guess = guess_none();
        for (int n = 0; n < live; n++) {
            const float4 entry = p->entries[n];
            const float similarity = total[n * ROW + j];
            const bool hit = similarity >= entry.z + error;
            sure = sure && (hit || similarity < entry.z - error);
            if (hit) {
                guess = guess_partial(guess, similarity + entry.y, (int)entry.w);
            }
        }
        slot[j] = arg_max_slot(guess.best, p->disagree, SLOTS);
        if (!sure || !guess_holds(&guess, error)) {
            list[atomic_inc(unsure)] = j;
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}
#endif

// What the task bank retrieved for each episode, MISS where there is no bank. unsure, and either h or
// room, are scratch: SLOTS + GUESS + 1 rows, then SEARCH_BLOCK entries. Ends behind a barrier.
inline void search_task(const Policy *p, __local const int *place, __local const float *f, const int t,
                        __local int *slot, __local int *unsure, __local float *h, __local float *room)
{
    if (get_local_id(0) < TILE) {
        slot[get_local_id(0)] = MISS;
    }
#if SLOTS > 0
    if (p->entries != 0) {
        __local float *total = SEARCH_IN_H ? h : room;
        __local int *list = (__local int *)(total + (SLOTS + GUESS) * ROW);
        guess_group(p, place, f, t, total, slot, list, unsure);
        if (*unsure != 0) {
            search_group(p, place, f, t, list, *unsure, total + (SLOTS + GUESS + 1) * ROW, total, slot);
        }
    }
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
}
