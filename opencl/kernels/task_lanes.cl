// The task bank's search for CPUs, LANES (16) episodes side by side.

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
    const int live = live_slots(p);
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

// The search without the task context, which is linear in u: the portfolio, what the calendar queries
// read, and 1. Its product with a key is that of u and a row of V, its norm that of R u, R being the
// triangle of its QR decomposition: GUESS terms where the ordered sums take TASK_DIM. They round
// differently; where that could change an episode's decision, false is returned.
inline bool guess_lanes(const Policy *p, const lanes_t *f, const lanes_t *input, const int count, int *slot)
{
    lanes_t u[GUESS];
    for (int k = 0; k < N_PORTFOLIO; k++) {
        u[k] = f[k];
    }
    for (int k = 0; k < N_CALENDAR; k++) {
        u[N_PORTFOLIO + k] = input[k];
    }
    u[GUESS - 1] = (lanes_t)(1.0f);
    __global const float *r = p->guess + SLOTS * GUESS;
    lanes_t square = (lanes_t)(0.0f);
    lanes_t size = (lanes_t)(0.0f);
    for (int i = 0; i < GUESS; i++) {
        lanes_t sum = (lanes_t)(0.0f);
        for (int k = i; k < GUESS; k++) {
            sum = fma((lanes_t)(r[i * GUESS + k]), u[k], sum);
        }
        square = fma(sum, sum, square);
        size = fma((lanes_t)(r[GUESS * GUESS + i]), fabs(u[i]), size);
    }
    const lanes_t norm = sqrt(square);
    lanes_t eps;
    for (int i = 0; i < LANES; i++) {
        ((float *)&eps)[i] = guess_error(((const float *)&size)[i], ((const float *)&norm)[i]);
    }
    int16 sure = square >= 4.0f * LEAST_SQUARE;
    Guess best[LANES];
    for (int i = 0; i < LANES; i++) {
        best[i] = guess_none();
    }
    for (int n = 0; n < SLOTS && p->entries[n].w >= 0.0f; n++) {
        const float4 entry = p->entries[n];
        lanes_t sum = (lanes_t)(0.0f);
        for (int k = 0; k < GUESS; k++) {
            sum = fma((lanes_t)(p->guess[n * GUESS + k]), u[k], sum);
        }
        const lanes_t similarity = sum / (norm * entry.x);
        const int16 hit = similarity >= entry.z + eps;
        sure = sure && (hit || similarity < entry.z - eps);
        for (int i = 0; any(hit) && i < count; i++) {
            if (((const int *)&hit)[i] != 0) {
                const float score = ((const float *)&similarity)[i] + entry.y;
                best[i] = guess_partial(best[i], score, (int)entry.w);
            }
        }
    }
    bool all_sure = true;
    for (int i = 0; i < count; i++) {
        const float error = ((const float *)&eps)[i];
        all_sure = all_sure && ((const int *)&sure)[i] != 0 && guess_holds(&best[i], error);
        slot[i] = arg_max_slot(best[i].best, p->disagree, SLOTS);
    }
    return all_sure;
}
