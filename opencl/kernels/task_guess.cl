// What both ways to guess a search of the task bank share. A guess knows the cosines up to an error;
// it holds where no such error could change the decision.

// The two best slots and the third score; -INFINITY: none.
typedef struct {
    Best best;
    float third;
} Guess;

inline Guess guess_none(void)
{
    Guess g;
    g.best = best_none();
    g.third = -INFINITY;
    return g;
}

// Offer a slot that stands above all seen before.
inline Guess guess_partial(Guess g, const float score, const int slot)
{
    g.third = max(g.third, min(score, g.best.second));
    g.best = arg_max_partial(g.best, score, slot);
    return g;
}

// Neither the order of the three best nor abstention can change; error is that of one cosine.
inline bool guess_holds(const Guess *g, const float error)
{
    const float gap = g->best.first - g->best.second;
    const float limit = 3.0f * error; // of two scores and their bonuses
    return g->best.other == MISS ||
           (gap >= limit && fabs(gap - CLOSE_SCORES) >= limit && g->best.second - g->third >= limit);
}

// Bound of the difference between the cosine from ordered sums and the guessed one, for a query of
// this norm; size bounds |bias| + |weights|*|inputs| + |center| over the context. In units of 2^-24:
// the context's elements are off by 10*size, ordered sums add TASK_ROUNDS + 8 each for product and
// norm, the guess's sums of GUESS terms 22*size each. Together 64*size/norm + 2*TASK_ROUNDS + 64 at
// most; twice that is taken.
inline float guess_error(const float size, const float norm)
{
    return 0x1.0p-24f * (128.0f * (size / norm) + (float)(4 * TASK_ROUNDS + 128));
}

// Slots that may be retrieved; they come first. All are counted: their loads need not wait in turn.
inline int live_slots(const Policy *p)
{
    int live = 0;
#pragma unroll 8
    for (int n = 0; n < SLOTS; n++) {
        live += p->entries[n].w >= 0.0f;
    }
    return live;
}
