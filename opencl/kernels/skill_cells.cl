// Cells that sum observations of one context and emit their mean, by a work-group that shares a bank.
// Twin of backtest/agent/bank/aggregation.py, and of the intake of bank.py.

// Whether an observation is finite; counts it and averages |h| (item 0).
inline bool intake(const BankView *b, const float size, const float xx, const float gg)
{
    b->counters[COUNT_ROWS] += 1;
    if (!(isfinite(size) && isfinite(gg) && isfinite(xx))) {
        b->counters[COUNT_NON_FINITE] += 1;
        return false;
    }
    if (gg > 0.0f) {
        b->head->h_count += 1;
        b->head->h_mean = b->head->h_mean + (size - b->head->h_mean) / (float)b->head->h_count;
    }
    return true;
}

// The cell of an observation, near[c] its key cosines: the nearest, or a new one (item 0).
inline void cell_leader(const BankRules *p, const BankView *b, __local const float *near,
                        __local Plan *plan)
{
    int best = MISS, empty = MISS, oldest = 0;
    for (int c = 0; c < p->cells; c++) {
        const bool used = b->cells[c].used != 0;
        if (used && near[c] >= b->head->threshold && (best == MISS || near[c] > near[best])) {
            best = c;
        }
        empty = !used && empty == MISS ? c : empty;
        oldest = b->cells[c].last < b->cells[oldest].last ? c : oldest;
    }
    plan->opened = best == MISS;
    if (best == MISS) {
        best = empty == MISS ? oldest : empty;
        b->counters[COUNT_RECYCLED] += empty == MISS;
    }
    b->head->cell_clock += 1;
    __global BankCell *cell = b->cells + best;
    cell->used = 1;
    cell->count = plan->opened ? 1 : cell->count + 1;
    cell->last = b->head->cell_clock;
    plan->cell = best;
    plan->count = cell->count < p->aggregate ? 0 : cell->count;
    cell->count = plan->count != 0 ? 0 : cell->count;
    b->counters[COUNT_SWALLOWED] += plan->count == 0;
}

// Add the observation to its cell; what a full cell emits takes the observation's place.
inline void cell_update(const BankRules *p, const BankView *b, const Work *w)
{
    const bool opened = w->plan->opened != 0;
    const int count = w->plan->count;
    __global float *key = b->cell_keys + (long)w->plan->cell * p->key_dim;
    __global float *sum = b->cell_sum + (long)w->plan->cell * p->dim;
    for (int d = get_local_id(0); d < p->key_dim; d += ITEMS) {
        key[d] = opened ? w->x[d] : (1.0f - CELL_RATE) * key[d] + CELL_RATE * w->x[d];
        w->x[d] = count != 0 ? key[d] : w->x[d];
    }
    for (int d = get_local_id(0); d < p->dim; d += ITEMS) {
        const float total = opened ? w->g[d] : sum[d] + w->g[d];
        sum[d] = count != 0 ? 0.0f : total;
        w->g[d] = count != 0 ? total / (float)count : w->g[d];
    }
}
