// Influence, utility and the end of a collection, by a work-group that shares a bank. Twin of
// backtest/agent/bank/utility.py and of close_collection in lifecycle.py.

// InfluencePartial: lane i of the influence of one application of `shift`, [dim] each: half of
// (before + after)*shift (trapezoid), or after*shift (end point).
inline float influence_partial(__global const float *before, __global const float *after,
                               __global const float *shift, const int dim, const int i,
                               const bool trapezoid)
{
    float s = 0.0f;
    for (int d = i; d < dim; d += 64) {
        const float g = trapezoid ? 0.5f * (before[d] + after[d]) : after[d];
        s = s + g * shift[d];
    }
    return s;
}

// InfluenceAccumulate: add one application to its slot; what is not finite is refused.
inline bool influence_accumulate(__global BankSkill *s, const float influence)
{
    const bool accepted = isfinite(influence);
    s->influence = accepted ? s->influence + influence : s->influence;
    return accepted;
}

// How much an influence counts under the utility rule.
inline float influence_weight(const BankRules *p, const float influence)
{
    return p->utility_rule == RULE_ORIGINAL ? max(influence, 0.0f) : fabs(influence);
}

// InfluenceTotal: ordered sum of the weights of all slots, for every item of the group.
inline float influence_total(const BankRules *p, __global const BankSkill *skills,
                             __local float *part)
{
    const int i = get_local_id(0) % 64;
    float s = 0.0f;
    for (int n = i; n < p->slots; n += 64) {
        s = s + influence_weight(p, skills[n].influence);
    }
    return group_sum(part + get_local_id(0) / 64 * 64, i, s);
}

// Utility: what one paired Delta makes of one slot's utility.
inline float utility(const BankRules *p, const float old, const float influence, const float total,
                     const float delta)
{
    const float share = influence_weight(p, influence) / total;
    if (p->utility_rule == RULE_ORIGINAL) {
        return p->keep_utility * old + p->beta_utility * (delta * share);
    }
    const float rate = p->utility_rule == RULE_SOLO ? p->beta_utility : p->beta_utility * share;
    return old + rate * (delta - old);
}

// Move the utilities of a bank by one paired Delta and clear the influence; the first 64 items.
inline void end_episode(const BankRules *p, const BankView *b, __local float *part,
                        const float delta)
{
    const int i = get_local_id(0);
    const bool signal = isfinite(delta) && fabs(delta) > LEAST_DELTA;
    const float total = influence_total(p, b->skills, part);
    float moved = 0.0f;
    for (int n = i; i < 64 && n < p->slots; n += 64) {
        __global BankSkill *s = b->skills + n;
        const bool acted = signal && s->used != 0 && s->state != SLOT_CANDIDATE &&
                           influence_weight(p, s->influence) > 0.0f;
        s->utility = acted ? utility(p, s->utility, s->influence, total, delta) : s->utility;
        s->influence = 0.0f;
        moved = acted ? 1.0f : moved;
    }
    const bool any = group_sum(part + i / 64 * 64, i % 64, moved) > 0.0f;
    if (i == 0) {
        b->counters[any ? COUNT_UTILITY_UPDATES : COUNT_UTILITY_SKIPS] += 1;
    }
    fence();
}

// One slot's utility after a round of solo rollouts of mean Delta; harmful: its 95 % interval lies
// below zero. Returns 1: moved, -1: skipped, 0: no skill there.
inline int solo_slot(const BankRules *p, __global BankSkill *s, const float mean, const int harmful)
{
    if (!(s->used != 0 && isfinite(mean) && fabs(mean) > LEAST_DELTA)) {
        return s->used != 0 ? -1 : 0;
    }
    s->utility = s->utility + p->beta_utility * (mean - s->utility);
    const bool alive = s->state == SLOT_PROTECTED || s->state == SLOT_ACTIVE;
    s->state = alive && harmful ? SLOT_INACTIVE : s->state;
    return 1;
}

// Whether a slot is used and PROTECTED or ACTIVE.
inline bool live(__global const BankSkill *s)
{
    return s->used != 0 && (s->state == SLOT_PROTECTED || s->state == SLOT_ACTIVE);
}

// End COLLECT: revive confirmed inactive slots, freeze the median scale and the mean |h| (item 0).
inline void close_collection(const BankRules *p, const BankView *b)
{
    int count = 0;
    for (int n = 0; n < p->slots; n++) {
        __global BankSkill *s = b->skills + n;
        if (s->used != 0 && s->state == SLOT_INACTIVE && s->observations >= p->min_confirmations) {
            s->state = SLOT_PROTECTED;
            s->age = 0;
            s->protection = p->protection_age;
        }
        count += live(s);
    }
    float lower = 0.0f, upper = 0.0f; // the two middle ones, the same for an odd count
    for (int n = 0; n < p->slots; n++) {
        int rank = 0;
        for (int k = 0; k < p->slots; k++) {
            const float other = b->skills[k].scale, mine = b->skills[n].scale;
            rank += live(b->skills + k) && (other < mine || (other == mine && k < n));
        }
        if (live(b->skills + n)) {
            lower = rank == (count - 1) / 2 ? b->skills[n].scale : lower;
            upper = rank == count / 2 ? b->skills[n].scale : upper;
        }
    }
    b->head->norm_ref = count % 2 ? upper : (lower + upper) * 0.5f;
    b->head->h_ref = b->head->h_mean;
}
