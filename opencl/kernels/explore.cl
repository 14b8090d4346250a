// Epsilon-greedy choice, independent per learned branch.

// Index of the largest of q[0..n); ties go to the lowest index.
inline int arg_max(const float *q, const int n)
{
    int best = 0;
    for (int i = 1; i < n; i++) {
        best = q[i] > q[best] ? i : best;
    }
    return best;
}

// One branch: with probability epsilon a uniform value, else the greedy one.
// Draws 2*branch (explore?) and 2*branch + 1 (which) of the episode's step t.
inline int branch_choice(const float *q, const int n, const float epsilon, const uint2 key,
                         const uint stage_round, const uint episode, const uint t, const uint branch)
{
    const int greedy = arg_max(q, n);
    if (epsilon <= 0.0f) {
        return greedy;
    }
    const float u = uniform(key, stage_round, episode, t, 2u * branch);
    const float v = uniform(key, stage_round, episode, t, 2u * branch + 1u);
    return u < epsilon ? min((int)(v * (float)n), n - 1) : greedy;
}

// All branches. q holds the learned branches' values one after the other (N_HEADS floats); a
// branch that is not learned keeps its fixed value: market order, full size, full urgency.
inline int4 choose(const float *q, const float epsilon, const uint2 key, const uint stage_round,
                   const uint episode, const uint t)
{
    int4 action = (int4)(0, N_MAGNITUDE - 1, ORDER_MARKET, N_URGENCY - 1);
    action.x = branch_choice(q, N_DIRECTION, epsilon, key, stage_round, episode, t, 0u);
    int at = N_DIRECTION;
#if LEARNS_MAGNITUDE
    action.y = branch_choice(q + at, N_MAGNITUDE, epsilon, key, stage_round, episode, t, 1u);
    at += N_MAGNITUDE;
#endif
#if LEARNS_ORDER
    action.z = branch_choice(q + at, N_ORDER, epsilon, key, stage_round, episode, t, 2u);
    at += N_ORDER;
#endif
#if LEARNS_URGENCY
    action.w = branch_choice(q + at, N_URGENCY, epsilon, key, stage_round, episode, t, 3u);
#endif
    return action;
}
