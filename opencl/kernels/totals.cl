// What a strategy adds up to. Twin of backtest/market/totals.py: same names, same order.

typedef struct {
    StrategyTotals totals;
    float lost[4]; // what rounding took from costs, turnover, square_pnl, square_loss
} Tally;

// Kahan's compensated sum: a plain float32 sum of a million bars keeps three digits.
inline float add(const float sum, const float x, float *lost)
{
    const float y = x - *lost;
    const float total = sum + y;
    *lost = (total - sum) - y;
    return total;
}

// Count one living step; equity0 is the equity before it, peak the highest up to its end.
inline void count_step(Tally *a, const StepResult *r, const float equity0, const float peak)
{
    StrategyTotals *k = &a->totals;
    const float pnl = r->equity - equity0;
    const float loss = min(pnl, 0.0f);
    k->max_drawdown = max(k->max_drawdown, peak - r->equity);
    k->costs = add(k->costs, r->tx_cost, &a->lost[0]);
    k->turnover = add(k->turnover, fabs(r->filled), &a->lost[1]);
    k->square_pnl = add(k->square_pnl, pnl * pnl, &a->lost[2]);
    k->square_loss = add(k->square_loss, loss * loss, &a->lost[3]);
    k->bars = k->bars + 1;
    k->exposed = k->exposed + (r->position != 0.0f ? 1 : 0);
    k->trades = k->trades + r->segment_complete;
    k->wins = k->wins + (r->trade_result > 0.0f ? 1 : 0);
    k->end = r->end;
}
