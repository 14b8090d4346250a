// Kernels of M banks side by side: group m (on a CPU one item) works on bank m, the rows of one bank
// in their order. Stages are inline functions, by the names of the D2Skill design:
//   ScoreSlots, ScoreFinalize, arg-max Partial and Merge    skill_score.cl
//   MetricPartial                                           skill_metric.cl
//   AgeLifecycle, CandidateLeader, VectorUpdate, DirectionEMA, PromoteSlot    skill_update.cl
//   aggregation cells                                       skill_cells.cl
//   InfluencePartial, -Accumulate, -Total, Utility          skill_utility.cl
//   GatherCorrection, and the search of many queries        skill_retrieval.cl
// An observation waits in x, g and unit: [M][key_dim], [M][dim], [M][dim].

// The arrays of bank m.
inline BankView bank_view(const BankRules *p, const int m, __global BankHead *head,
                          __global BankSkill *skills, __global long *uses, __global float *keys,
                          __global float *directions, __global float *corrections,
                          __global BankCell *cells, __global float *cell_keys,
                          __global float *cell_sum, __global long *counters)
{
    const long row = (long)m * (p->slots + p->pool);
    BankView b;
    b.head = head + m;
    b.skills = skills + row;
    b.uses = uses + m * p->slots;
    b.keys = keys + row * p->key_dim;
    b.directions = directions + row * p->dim;
    b.corrections = corrections + row * p->dim;
    b.cells = cells + m * p->cells;
    b.cell_keys = cell_keys + (long)m * p->cells * p->key_dim;
    b.cell_sum = cell_sum + (long)m * p->cells * p->dim;
    b.counters = counters + m * N_COUNTERS;
    return b;
}

inline Work work_of(const BankRules *p, const int m, __global float *x, __global float *g,
                    __global float *unit, __local float4 *part, __local float *sum,
                    __local Plan *plan)
{
    Work w;
    w.x = x + (long)m * p->key_dim;
    w.g = g + (long)m * p->dim;
    w.unit = unit + (long)m * p->dim;
    w.part = (__local float *)part;
    w.sum = sum;
    w.plan = plan;
    return w;
}

// The cells take what waits in x and g; a full one puts its mean in their place, else nothing waits
// any more. Begins and ends behind a fence, as all stages here.
inline void aggregate(const BankRules *p, const BankView *b, const Work *w)
{
    metric_rows(w, b->cell_keys, w->x, p->key_dim, p->cells, w->sum);
    for (int c = get_local_id(0); c < p->cells; c += ITEMS) {
        w->sum[c] = known_cosine(w->sum[c], w->plan->xx, b->cells[c].key_square);
    }
    fence();
    if (get_local_id(0) == 0) {
        cell_leader(p, b, w->sum, w->plan);
    }
    fence();
    cell_update(p, b, w);
    fence();
    const int cell = w->plan->cell;
    metric_squares(w, b->cell_keys + (long)cell * p->key_dim, p->key_dim, w->g, p->dim, w->sum);
    if (get_local_id(0) == 0) {
        b->cells[cell].key_square = w->plan->xx = w->sum[0];
        w->plan->gg = w->sum[1];
        w->plan->go = w->plan->count != 0;
    }
    fence();
}

// Tick, and the tests of |g|: whether what waits teaches anything.
inline void admit(const BankRules *p, const BankView *b, const Work *w)
{
    const bool finite = isfinite(w->plan->xx) && isfinite(w->plan->gg);
    if (finite) { // of the whole group
        tick_all(p, b, w);
    }
    fence(); // all have read go and the squares
    if (get_local_id(0) == 0) {
        const float size = sqrt(w->plan->gg);
        w->plan->go = finite && size > 0.0f && !too_small(b->head, size);
        w->plan->size = size;
        w->plan->target = MISS;
        w->plan->freed = 0;
        b->counters[finite ? COUNT_SMALL : COUNT_NON_FINITE] += !w->plan->go;
    }
    fence();
}

// Match what waits, or confirm, restart or seed a candidate; the result is in w->plan.
inline void learn(const BankRules *p, const BankView *b, const Work *w)
{
    const int all = p->slots + p->pool;
    const float size = w->plan->size;
    for (int d = get_local_id(0); d < p->dim; d += ITEMS) {
        w->unit[d] = w->g[d] / size;
    }
    fence();
    __local float *key = w->sum, *way = w->sum + all;
    metric_rows(w, b->keys, w->x, p->key_dim, all, key);
    metric_rows(w, b->directions, w->unit, p->dim, all, way);
    metric_rows(w, w->unit, w->unit, p->dim, 1, way + all);
    for (int r = get_local_id(0); r < all; r += ITEMS) {
        key[r] = known_cosine(key[r], w->plan->xx, b->skills[r].key_square);
        way[r] = known_cosine(way[r], way[all], b->skills[r].direction_square);
    }
    fence();
    if (get_local_id(0) == 0 && !match_slot(p, b, key, way, w->plan)) {
        propose_candidate(p, b, key, way, w->plan);
    }
    fence();
    vector_update(p, b, w, w->plan->row, w->plan->blend != 0);
    if (w->plan->freed) { // of the whole group
        promote_slot(p, b, w->plan->row, w->plan->target);
    }
}

// Rows h [M][rows][key_dim], g [M][rows][dim], h_norm [M][rows] or null; row r of bank m is used if
// r < counts[m].
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1), vec_type_hint(float16))) void bank_update(
    const BankRules rules, __global BankHead *head, __global BankSkill *skills,
    __global long *uses, __global float *keys, __global float *directions,
    __global float *corrections, __global BankCell *cells, __global float *cell_keys,
    __global float *cell_sum, __global long *counters, __global const float *center,
    __global float *x, __global float *g_, __global float *unit, __local float4 *part,
    __local float *sum, __local Plan *plan, __global const float *h, __global const float *g,
    __global const float *h_norm, __global const int *counts, const int rows,
    __global int *decision, __global int *slot)
{
    const int m = get_group_id(0), j = get_local_id(0);
    const BankRules *p = &rules;
    const BankView b = bank_view(p, m, head, skills, uses, keys, directions, corrections, cells,
                                 cell_keys, cell_sum, counters);
    const Work w = work_of(p, m, x, g_, unit, part, sum, plan);
    for (int r = 0; r < counts[m]; r++) {
        const long row = (long)m * rows + r;
        __global const float *my_h = h + row * p->key_dim;
        for (int d = j; d < p->key_dim; d += ITEMS) {
            w.x[d] = my_h[d] - center[(long)m * p->key_dim + d];
        }
        for (int d = j; d < p->dim; d += ITEMS) {
            w.g[d] = g[row * p->dim + d];
        }
        fence();
        metric_rows(&w, my_h, my_h, p->key_dim, 1, sum + 2);
        metric_squares(&w, w.x, p->key_dim, w.g, p->dim, sum);
        if (j == 0) {
            const float size = h_norm != 0 ? h_norm[row] : sqrt(sum[2]);
            plan->xx = sum[0];
            plan->gg = sum[1];
            plan->go = intake(&b, size, plan->xx, plan->gg);
            plan->decision = DECISION_NONE;
            plan->slot = MISS;
        }
        fence();
        // whether to go on is the same for all items
        if (plan->go && p->aggregate > 1) {
            aggregate(p, &b, &w);
        }
        if (plan->go) {
            admit(p, &b, &w);
        }
        if (plan->go) {
            learn(p, &b, &w);
        }
        if (j == 0) {
            decision[row] = plan->decision;
            slot[row] = plan->slot;
        }
        fence();
    }
}

// One tick of every bank.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1), vec_type_hint(float16))) void bank_tick(
    const BankRules rules, __global BankHead *head, __global BankSkill *skills,
    __global long *uses, __global float *keys, __global float *directions,
    __global float *corrections, __global BankCell *cells, __global float *cell_keys,
    __global float *cell_sum, __global long *counters, __local float4 *part, __local float *sum,
    __local Plan *plan)
{
    const BankView b = bank_view(&rules, get_group_id(0), head, skills, uses, keys, directions,
                                 corrections, cells, cell_keys, cell_sum, counters);
    Work w;
    w.part = (__local float *)part;
    w.sum = sum;
    w.plan = plan;
    tick_all(&rules, &b, &w);
}

// DirectionEMA: turn slot slots[m] of bank m (MISS: none) towards g [M][dim]; turned [M].
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1), vec_type_hint(float16))) void bank_turn(
    const BankRules rules, __global BankHead *head, __global BankSkill *skills,
    __global long *uses, __global float *keys, __global float *directions,
    __global float *corrections, __global BankCell *cells, __global float *cell_keys,
    __global float *cell_sum, __global long *counters, __global float *x, __global float *g_,
    __global float *unit, __local float4 *part, __local float *sum, __local Plan *plan,
    __global const int *slots, __global const float *g, __global int *turned)
{
    const int m = get_group_id(0), j = get_local_id(0);
    const BankRules *p = &rules;
    const BankView b = bank_view(p, m, head, skills, uses, keys, directions, corrections, cells,
                                 cell_keys, cell_sum, counters);
    const Work w = work_of(p, m, x, g_, unit, part, sum, plan);
    const int row = slots[m];
    __global const float *mine = g + (long)m * p->dim;
    metric_rows(&w, mine, mine, p->dim, 1, sum);
    const float gg = sum[0];
    const bool turns = row != MISS && gg > 0.0f && isfinite(gg) && live(b.skills + max(row, 0));
    if (j == 0) {
        turned[m] = turns;
        b.counters[COUNT_NON_FINITE] += row != MISS && !isfinite(gg);
        b.counters[COUNT_DIRECTION_UPDATES] += turns;
    }
    if (turns) { // of the whole group
        for (int d = j; d < p->dim; d += ITEMS) {
            w.g[d] = mine[d];
            w.unit[d] = mine[d] / sqrt(gg);
        }
        fence();
        direction_ema(p, &b, &w, row);
        __global const float *direction = b.directions + (long)row * p->dim;
        metric_rows(&w, direction, direction, p->dim, 1, sum);
        if (j == 0) {
            b.skills[row].direction_square = sum[0];
        }
    }
}
