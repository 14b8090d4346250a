// Epsilon-greedy choice, independent per learned branch.

// Index of the largest of q[0..n); ties go to the lowest index.
inline int arg_max(const float *q, const int n)
{
    int best = 0;
    float top = q[0];
    for (int i = 1; i < n; i++) {
        best = q[i] > top ? i : best;
        top = q[i] > top ? q[i] : top;
    }
    return best;
}

// What chance makes of one branch of n values: a uniform one with probability epsilon, else -1.
// Draws 2*branch (explore?) and 2*branch + 1 (which) of the episode's step t.
inline int drawn_value(const int n, const float epsilon, const uint2 key, const uint stage_round,
                       const uint episode, const uint t, const uint branch)
{
    if (epsilon <= 0.0f || uniform(key, stage_round, episode, t, 2u * branch) >= epsilon) {
        return -1;
    }
    const float v = uniform(key, stage_round, episode, t, 2u * branch + 1u);
    return min((int)(v * (float)n), n - 1);
}

// The same of all branches; -1 where a branch is not learned.
inline int4 drawn_action(const float epsilon, const uint2 key, const uint stage_round, const uint episode,
                         const uint t)
{
    int4 drawn = (int4)(-1);
    drawn.x = drawn_value(N_DIRECTION, epsilon, key, stage_round, episode, t, 0u);
#if LEARNS_MAGNITUDE
    drawn.y = drawn_value(N_MAGNITUDE, epsilon, key, stage_round, episode, t, 1u);
#endif
#if LEARNS_ORDER
    drawn.z = drawn_value(N_ORDER, epsilon, key, stage_round, episode, t, 2u);
#endif
#if LEARNS_URGENCY
    drawn.w = drawn_value(N_URGENCY, epsilon, key, stage_round, episode, t, 3u);
#endif
    return drawn;
}

// The drawn values, and greedy ones where nothing was drawn. q holds the learned branches' values one
// after the other (N_HEADS floats); a branch that is not learned keeps its fixed value: market
// order, full size, full urgency.
inline int4 choose(const float *q, const int4 drawn)
{
    int4 action = (int4)(0, N_MAGNITUDE - 1, ORDER_MARKET, N_URGENCY - 1);
    action.x = drawn.x >= 0 ? drawn.x : arg_max(q, N_DIRECTION);
    int at = N_DIRECTION;
#if LEARNS_MAGNITUDE
    action.y = drawn.y >= 0 ? drawn.y : arg_max(q + at, N_MAGNITUDE);
    at += N_MAGNITUDE;
#endif
#if LEARNS_ORDER
    action.z = drawn.z >= 0 ? drawn.z : arg_max(q + at, N_ORDER);
    at += N_ORDER;
#endif
#if LEARNS_URGENCY
    action.w = drawn.w >= 0 ? drawn.w : arg_max(q + at, N_URGENCY);
#endif
    return action;
}
