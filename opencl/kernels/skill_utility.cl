// Influence, utility and the end of a collection, one work-item a bank. Twin of
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

// InfluenceTotal: ordered sum of the weights of all slots.
inline float influence_total(const BankRules *p, __global const BankSkill *skills)
{
    float lane[64];
    for (int i = 0; i < 64; i++) {
        lane[i] = 0.0f;
    }
    for (int n = 0; n < p->slots; n++) {
        lane[n % 64] = lane[n % 64] + influence_weight(p, skills[n].influence);
    }
    return lanes_of(lane);
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

// Move the utilities of a bank by one paired Delta and clear the influence.
inline void end_episode(const BankRules *p, const BankView *b, const float delta)
{
    const bool signal = isfinite(delta) && fabs(delta) > LEAST_DELTA;
    const float total = influence_total(p, b->skills);
    bool any = false;
    for (int n = 0; n < p->slots; n++) {
        __global BankSkill *s = b->skills + n;
        const bool acted = signal && s->used != 0 && s->state != SLOT_CANDIDATE &&
                           influence_weight(p, s->influence) > 0.0f;
        s->utility = acted ? utility(p, s->utility, s->influence, total, delta) : s->utility;
        s->influence = 0.0f;
        any = any || acted;
    }
    b->counters[any ? COUNT_UTILITY_UPDATES : COUNT_UTILITY_SKIPS] += 1;
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

// End COLLECT: revive confirmed inactive slots, freeze the median scale and the mean |h|.
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
