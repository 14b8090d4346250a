// What one observation does to a bank: lifecycle, match, candidates, promotion. Twin of
// backtest/agent/bank/lifecycle.py and update.py: same decisions, same order of operations.

// AgeLifecycle: one tick of a slot or of a candidate; an expired candidate comes back empty.
inline BankSkill age_lifecycle(const BankRules *p, BankSkill s, const bool candidate)
{
    if (candidate) {
        s.clock = s.used != 0 ? s.clock + 1 : s.clock;
        return s.clock >= p->candidate_ttl ? no_skill() : s;
    }
    const bool used = s.used != 0;
    s.age = used ? (s.retrieved != 0 ? 0 : s.age + 1) : s.age;
    s.retrieved = 0;
    s.protection = max(s.protection - 1, 0);
    const bool grown = used && s.state == SLOT_PROTECTED && s.protection == 0;
    const bool idle = used && s.state == SLOT_ACTIVE && s.age >= p->inactivity_age;
    s.age = grown ? 0 : s.age;
    s.state = grown ? SLOT_ACTIVE : (idle ? SLOT_INACTIVE : s.state);
    return s;
}

// Make the vectors of a row zero, all items.
inline void empty_vectors(const BankRules *p, const BankView *b, const int row)
{
    for (int d = get_local_id(0); d < p->key_dim; d += ITEMS) {
        b->keys[(long)row * p->key_dim + d] = 0.0f;
    }
    for (int d = get_local_id(0); d < p->dim; d += ITEMS) {
        b->directions[(long)row * p->dim + d] = 0.0f;
        b->corrections[(long)row * p->dim + d] = 0.0f;
    }
}

// One tick of a whole bank, all items. Begins and ends behind a fence.
inline void tick_all(const BankRules *p, const BankView *b, const Work *w)
{
    const int all = p->slots + p->pool;
    for (int r = get_local_id(0); r < all; r += ITEMS) {
        const BankSkill before = b->skills[r];
        const BankSkill after = age_lifecycle(p, before, r >= p->slots);
        b->skills[r] = after;
        w->sum[r] = before.used != after.used ? 1.0f : 0.0f; // expired
    }
    fence();
    int expired = 0;
    for (int r = p->slots; r < all; r++) {
        if (w->sum[r] != 0.0f) {
            empty_vectors(p, b, r);
            expired++;
        }
    }
    if (get_local_id(0) == 0) {
        b->counters[COUNT_EXPIRED] += expired;
        b->counters[COUNT_TICKS] += 1;
    }
    fence();
}

// Whether |g| < 1e-3*norm_ema; moves norm_ema to size afterwards (item 0).
inline bool too_small(__global BankHead *head, const float size)
{
    const float before = head->norm_ema;
    head->norm_ema = before > 0.0f ? (1.0f - NORM_RATE) * before + NORM_RATE * size : size;
    return size < LEAST_SHARE * before;
}

// CandidateLeader: of the used rows [first, last) whose cosines key[r] and way[r] reach their
// thresholds, the one with the highest key cosine; MISS without one.
inline int candidate_leader(__global const BankSkill *skills, __local const float *key,
                            __local const float *way, const int first, const int last,
                            const float threshold, const float way_threshold)
{
    int best = MISS;
    for (int r = first; r < last; r++) {
        const bool passes = skills[r].used != 0 && key[r] >= threshold && way[r] >= way_threshold;
        best = passes && (best == MISS || key[r] > key[best]) ? r : best;
    }
    return best;
}

// The slot that a candidate is promoted to; MISS: none, it is dropped (item 0).
inline int promotion_target(const BankRules *p, __global const BankSkill *skills)
{
    int best = MISS;
    float highest = -INFINITY;
    for (int n = 0; n < p->slots; n++) {
        if (skills[n].used == 0) {
            return n;
        }
        const bool idle = skills[n].state == SLOT_INACTIVE && skills[n].protection == 0;
        const float aged = min(AGE_WEIGHT * (float)skills[n].age, AGE_LIMIT);
        const float worth = aged - clamp(skills[n].utility, -1.0f, 1.0f);
        if (idle && worth > highest) {
            best = n;
            highest = worth;
        }
    }
    return best;
}

// A scale moved towards |g|.
inline float scale_ema(const BankRules *p, const float scale, const float size)
{
    const float mixed = p->keep_magnitude * scale + p->beta_magnitude * size;
    return min(max(mixed, 0.0f), p->max_correction);
}

// MATCH: what the scalars of a slot become, and what the items shall do (item 0). way: direction
// cosines. Returns whether a slot took the observation.
inline bool match_slot(const BankRules *p, const BankView *b, __local const float *key,
                       __local const float *way, __local Plan *plan)
{
    const float threshold = b->head->threshold;
    const int nearest =
        candidate_leader(b->skills, key, way, 0, p->slots, threshold, -INFINITY);
    if (nearest != MISS) {
        __global BankSkill *s = b->skills + nearest;
        s->contacts += 1;
        s->agreement = s->agreement + (way[nearest] - s->agreement) / (float)s->contacts;
    }
    const int slot =
        candidate_leader(b->skills, key, way, 0, p->slots, threshold, p->direction_threshold);
    if (slot == MISS) {
        return false;
    }
    __global BankSkill *s = b->skills + slot;
    s->scale = scale_ema(p, s->scale, plan->size);
    s->observations += 1;
    s->mass = MASS_KEEP * s->mass + MASS_GAIN;
    s->age = 0;
    if (s->state == SLOT_INACTIVE) {
        s->state = SLOT_PROTECTED;
        s->protection = p->protection_age;
        b->counters[COUNT_REVIVALS] += 1;
    }
    b->counters[COUNT_MATCHES] += 1;
    plan->row = plan->slot = slot;
    plan->blend = 1;
    plan->decision = DECISION_MATCH;
    return true;
}

// CANDIDATE, RESET or SEED of a place in the pool (item 0).
inline void propose_candidate(const BankRules *p, const BankView *b, __local const float *key,
                              __local const float *way, __local Plan *plan)
{
    const int last = p->slots + p->pool;
    const float threshold = b->head->threshold;
    int row = candidate_leader(b->skills, key, way, p->slots, last, threshold,
                               p->direction_threshold);
    plan->blend = row != MISS;
    plan->decision = row != MISS ? DECISION_CANDIDATE : DECISION_RESET;
    if (row == MISS) {
        row = candidate_leader(b->skills, key, way, p->slots, last, threshold, -INFINITY);
    }
    if (row == MISS) {
        row = p->slots;
        for (int r = p->slots; r < last && plan->decision == DECISION_RESET; r++) {
            row = b->skills[r].streak < b->skills[row].streak ? r : row;
            if (b->skills[r].used == 0) {
                row = r;
                plan->decision = DECISION_SEED;
            }
        }
    }
    __global BankSkill *s = b->skills + row;
    s->used = 1;
    s->clock = 0;
    s->streak = plan->blend ? s->streak + 1 : 1;
    s->scale = plan->blend ? scale_ema(p, s->scale, plan->size) : min(plan->size, p->max_correction);
    b->counters[COUNT_CONFIRMATIONS] += plan->decision == DECISION_CANDIDATE;
    b->counters[COUNT_RESETS] += plan->decision == DECISION_RESET;
    b->counters[COUNT_SEEDS] += plan->decision == DECISION_SEED;
    plan->row = row;
    plan->slot = plan->target = MISS;
    plan->freed = s->streak >= p->min_confirmations;
    if (plan->freed) {
        plan->target = plan->slot = promotion_target(p, b->skills);
        const bool free = plan->target != MISS && b->skills[plan->target].used == 0;
        plan->decision = plan->target == MISS ? DECISION_NONE : (free ? DECISION_FREE : DECISION_EVICT);
        b->counters[COUNT_DROPS] += plan->target == MISS;
        b->counters[COUNT_PROMOTIONS_FREE] += free;
        b->counters[COUNT_PROMOTIONS_EVICT] += plan->decision == DECISION_EVICT;
    }
}

// What keeps a vector of this length at or below the norm max_correction.
inline float clip_factor(const BankRules *p, const float length)
{
    return length <= p->max_correction ? 1.0f : p->max_correction / length;
}

// DirectionEMA: turn the direction of a row towards unit and rebuild its correction, all items.
// Opposite vectors leave the direction as it is. Begins and ends behind a fence.
inline void direction_ema(const BankRules *p, const BankView *b, const Work *w, const int row)
{
    __global float *direction = b->directions + (long)row * p->dim;
    __global float *correction = b->corrections + (long)row * p->dim;
    for (int i = get_local_id(0); i < 64; i += ITEMS) {
        float turned = 0.0f, moved = 0.0f;
        for (int d = i; d < p->dim; d += 64) {
            const float u = p->keep_direction * direction[d] + p->beta_direction * w->unit[d];
            turned = turned + u * u;
        }
        for (int d = i; p->full && d < p->dim; d += 64) {
            const float v = p->keep_correction * correction[d] + p->beta_correction * w->g[d];
            moved = moved + v * v;
        }
        w->part[i] = turned;
        w->part[PART_ROW + i] = moved;
    }
    metric_total(w, 2, w->sum);
    const bool turns = w->sum[0] >= LEAST_SQUARE;
    const float length = sqrt(w->sum[0]);
    const float factor = clip_factor(p, sqrt(w->sum[1]));
    const float scale = b->skills[row].scale;
    for (int d = get_local_id(0); d < p->dim; d += ITEMS) {
        const float u = p->keep_direction * direction[d] + p->beta_direction * w->unit[d];
        const float v = p->keep_correction * correction[d] + p->beta_correction * w->g[d];
        const float turned = turns ? u / length : direction[d];
        direction[d] = turned;
        correction[d] = p->full ? v * factor : turned * scale;
    }
    fence();
}

// VectorUpdate: move every vector of a row towards the observation, or start it again from it; all
// items. Begins and ends behind a fence.
inline void vector_update(const BankRules *p, const BankView *b, const Work *w, const int row,
                          const bool blend)
{
    __global float *key = b->keys + (long)row * p->key_dim;
    __global float *direction = b->directions + (long)row * p->dim;
    __global float *correction = b->corrections + (long)row * p->dim;
    for (int d = get_local_id(0); d < p->key_dim; d += ITEMS) {
        key[d] = blend ? p->keep_key * key[d] + p->beta_key * w->x[d] : w->x[d];
    }
    if (blend) { // of the whole group
        direction_ema(p, b, w, row);
    } else {
        const float scale = b->skills[row].scale;
        const float factor = clip_factor(p, w->plan->size);
        for (int d = get_local_id(0); d < p->dim; d += ITEMS) {
            direction[d] = w->unit[d];
            correction[d] = p->full ? w->g[d] * factor : w->unit[d] * scale;
        }
        fence();
    }
    metric_squares(w, key, p->key_dim, direction, p->dim, w->sum);
    if (get_local_id(0) == 0) {
        b->skills[row].key_square = w->sum[0];
        b->skills[row].direction_square = w->sum[1];
    }
    fence();
}

// PromoteSlot: commit candidate `row` to slot `target` (MISS: to none) and empty its place; all
// items. Begins and ends behind a fence.
inline void promote_slot(const BankRules *p, const BankView *b, const int row, const int target)
{
    for (int d = get_local_id(0); target != MISS && d < p->key_dim; d += ITEMS) {
        b->keys[(long)target * p->key_dim + d] = b->keys[(long)row * p->key_dim + d];
    }
    for (int d = get_local_id(0); target != MISS && d < p->dim; d += ITEMS) {
        b->directions[(long)target * p->dim + d] = b->directions[(long)row * p->dim + d];
        b->corrections[(long)target * p->dim + d] = b->corrections[(long)row * p->dim + d];
    }
    empty_vectors(p, b, row);
    if (get_local_id(0) == 0) {
        BankSkill s = b->skills[row];
        b->skills[row] = no_skill();
        s.observations = s.streak;
        s.mass = (float)s.streak;
        s.streak = s.clock = 0;
        s.state = SLOT_PROTECTED;
        s.protection = p->protection_age;
        if (target != MISS) {
            b->skills[target] = s;
            b->uses[target] = 0;
        }
    }
    fence();
}
