// The market: one step of one episode. Twin of backtest/market/step.py: same names, same order.

typedef struct {
    float entry_price;
    float trade_pnl;
    float aux_at_entry;
    float realized; // currency realised by this step, net of its costs
    bool closed;    // a trade closed by the fill
    bool flipped;   // and its opposite opened
    float result;   // currency, net, of the trade that closed, else 0
} Ledger;

// Book one fill into the trade ledger; a flip closes the old trade and opens the rest.
inline Ledger book(const EpisodeState *s, const MarketParams *p, const float q1, const float d,
                   const float price, const float entry, const float trade_cost,
                   const float roll_cost, const float aux)
{
    const float q0 = s->position;
    const bool reduces = q0 * d < 0.0f;
    const bool flipped = q0 * q1 < 0.0f;
    const bool closed = q0 != 0.0f && (q1 == 0.0f || flipped);
    const float units = reduces ? (flipped ? q0 : -d) : 0.0f; // closed, signed as the trade
    const float realised = units * (price - entry) * p->mult;
    const bool opens = (q0 == 0.0f && q1 != 0.0f) || flipped;
    const bool adds = d != 0.0f && !reduces;
    // a flip's share of the old trade, or an increase's average price: never both
    const float top = adds ? q0 * entry + d * price : q0;
    const float bottom = adds ? q1 : d;
    const bool divides = adds || flipped;
    const float quotient = (divides ? top : 1.0f) / (divides ? bottom : 1.0f);
    const float share = flipped ? -quotient : 1.0f;
    const float old_cost = trade_cost * share + roll_cost;
    const float new_cost = trade_cost - trade_cost * share;
    const float running = s->trade_pnl + realised - old_cost;
    float entry1 = adds ? quotient : entry;
    entry1 = opens ? price : entry1;
    Ledger ledger;
    ledger.entry_price = q1 == 0.0f ? 0.0f : entry1;
    ledger.trade_pnl = flipped ? -new_cost : (q1 == 0.0f ? 0.0f : running);
    ledger.aux_at_entry = q1 == 0.0f ? 0.0f : (opens ? aux : s->aux_at_entry);
    ledger.realized = realised - (trade_cost + roll_cost);
    ledger.closed = closed;
    ledger.flipped = flipped;
    ledger.result = closed ? running : 0.0f;
    return ledger;
}

// The account fell to its ruin level: what is open is lost at the mark, without a further cost.
// Called behind a branch: it is rare, and as selects it would be a tenth of every step.
inline void ruin(const MarketParams *p, EpisodeState *s, StepResult *r, const float c1,
                 const float unit, const float aux)
{
    const float q1 = s->position;
    const bool open_trade = q1 != 0.0f;
    const float unrealised = q1 * (c1 - s->entry_price) * p->mult;
    const float outcome = trade_outcome(p, s->trade_pnl + unrealised, unit);
    if (CALIBRATED) {
        r->asym = r->asym - loss_penalty(p, open_trade, outcome);
    }
    const float aux0 = CALIBRATED ? s->aux_at_entry : aux;
    r->r_aux = r->r_aux + trade_bonus(p, open_trade, aux0, q1, outcome);
    r->segment_complete = r->segment_complete || open_trade;
    r->end = END_TERMINATED;
    s->position = 0.0f;
    s->cash = s->portfolio_val;
    s->hold_time = 0.0f;
    s->realized_pnl = s->realized_pnl + unrealised;
    s->entry_price = 0.0f;
    s->trade_pnl = 0.0f;
    s->aux_at_entry = 0.0f;
}

// One bar in one or two loads; read member by member it takes eight.
inline Bar bar_at(__global const Bar *bars, const int i)
{
#ifdef cl_intel_vec_len_hint // on Intel's CPU runtime the aligned load is a tenth slower
    const float8 raw = vload8(i, (__global const float *)bars);
#else
    const float8 raw = *(__global const float8 *)(bars + i);
#endif
    Bar bar;
    bar.open = raw.s0;
    bar.high = raw.s1;
    bar.low = raw.s2;
    bar.close = raw.s3;
    bar.sigma = raw.s4;
    bar.adx = raw.s5;
    bar.cusum = raw.s6;
    bar.flags = as_uint(raw.s7);
    return bar;
}

// Advance one episode towards a target position; *s becomes the state at close[b+1].
// Always inlined: a compiler that keeps the call keeps the state in memory too.
inline __attribute__((always_inline)) StepResult
advance(const MarketParams *p, EpisodeState *s, const float target, const float urgency,
        const int order, const Bar bar, const Bar nxt, const int t, const bool last, const float aux)
{
    const float mult = p->mult;
    const float q0 = s->position;
    const float c1 = nxt.close;

    const bool rolled = (nxt.flags & BAR_ROLL) != 0;
    const float gap = rolled ? nxt.open - bar.close : 0.0f;
    const float c0 = bar.close + gap;
    const float entry = q0 != 0.0f ? s->entry_price + gap : s->entry_price;
    float cash = s->cash - q0 * gap * mult;
    const float roll_fee = p->commission + mult * p->half_spread;
    const float roll_cost = rolled ? 2.0f * fabs(q0) * roll_fee : 0.0f;

    const float delta = position_change(p, q0, target, urgency);
    float price;
    const float d = order_fill(p, bar, nxt, c0, delta, order, &price);
    const float q1 = q0 + d;

    float gross = mult * (q0 * (c1 - c0) + d * (c1 - price));
    gross = at_close(order) ? mult * q1 * (c1 - c0) : gross;

    const float crossing = order == ORDER_MARKET ? mult * (p->half_spread + p->slippage) : 0.0f;
    const float notional_cost = fabs(price + p->base) * mult * p->tx_cost_multiplier;
    const float trade_cost = fabs(d) * (p->commission + crossing + notional_cost);
    const float tx_cost = trade_cost + roll_cost;
    cash = cash - (d * price * mult + tx_cost);
    const float equity = cash + q1 * c1 * mult;

    const Ledger ledger = book(s, p, q1, d, price, entry, trade_cost, roll_cost, aux);

    const float dust = CALIBRATED ? DUST * p->max_position : DUST;
    const bool flat = fabs(q1) < dust;
    const float flat_counter = flat ? s->flat_counter + 1.0f : 0.0f;
    const float held = CALIBRATED && ledger.flipped ? 1.0f : s->hold_time + 1.0f;
    const float hold_time = flat ? 0.0f : held;

    const float scale = reward_scale(p, bar.sigma);
    const float unit = 1.0f / scale;
    const float exposure = fabs(q1) * (1.0f / p->max_position);
    const float per_equity = 1.0f / max(s->prev_equity, 1.0f);
    const float R = (gross - tx_cost) * per_equity;
    const float dA = R - s->dsr_A;
    const float dB = R * R - s->dsr_B;
    StepResult r;
    r.dsr = differential_sharpe(p, s->dsr_A, s->dsr_B, dA, dB, 0.1f * scale * per_equity, exposure, t);
    const float A = s->dsr_A + p->dsr_eta * dA;
    const float B = s->dsr_B + p->dsr_eta * dB;
    const float ema = s->pnl_ema + p->dsr_eta * (gross - s->pnl_ema);
    const float surprise = gross - ema;
    const float var = s->pnl_var + p->dsr_eta * (surprise * surprise - s->pnl_var);

    const float peak = max(s->peak_equity, equity);
    const float excess = max(0.0f, (peak - equity) - p->dd_threshold * peak);
    r.dd_penalty = drawdown_penalty(p, peak, equity, excess, s->dd_excess, unit);
    const float dd_excess = equity >= peak ? 0.0f : max(s->dd_excess, excess);

    r.pnl_z = pnl_score(p, gross, tx_cost, ema, var, unit);
    const float outcome = trade_outcome(p, ledger.result, unit);
    if (CALIBRATED) {
        r.asym = r.pnl_z - loss_penalty(p, ledger.closed, outcome);
        r.hold_rent = min(hold_time * p->time_decay_rate * exposure, p->max_hold_penalty);
    } else {
        r.asym = r.pnl_z >= 0.0f ? r.pnl_z : r.pnl_z * p->loss_aversion;
        r.hold_rent = hold_time * p->time_decay_rate;
    }
    const float aux0 = CALIBRATED ? s->aux_at_entry : aux;
    r.r_aux = trade_bonus(p, ledger.closed, aux0, q0, outcome);
    r.trend = regime(p, bar.adx, bar.cusum, &r.vol);
    r.idle = min(flat_counter * p->idle_scale, p->max_idle_penalty);
    r.tx_cost = tx_cost;
    r.gross = gross;
    r.fill_price = price;
    r.filled = d;
    r.position = q1;
    r.equity = equity;
    r.trade_result = ledger.result;
    r.segment_complete = ledger.closed;
    r.end = last ? END_TRUNCATED : END_RUNNING;

    s->position = q1;
    s->cash = cash;
    s->portfolio_val = equity;
    s->dsr_A = A;
    s->dsr_B = B;
    s->pnl_ema = ema;
    s->pnl_var = var;
    s->peak_equity = peak;
    s->flat_counter = flat_counter;
    s->prev_equity = equity;
    s->hold_time = hold_time;
    s->realized_pnl = s->realized_pnl + ledger.realized;
    s->entry_price = ledger.entry_price;
    s->trade_pnl = ledger.trade_pnl;
    s->aux_at_entry = ledger.aux_at_entry;
    s->dd_excess = dd_excess;
    if (equity <= p->ruin_level) {
        ruin(p, s, &r, c1, unit, aux);
    }
    r.reward = weighted_sum(p, &r);
    return r;
}

// Advance one episode by one bar under an action (direction, magnitude, order, urgency).
inline __attribute__((always_inline)) StepResult
step(const MarketParams *p, EpisodeState *s, const int4 action, const Bar bar, const Bar nxt,
     const int t, const bool last, const float aux)
{
    const float target = target_position(p, s->position, action);
    return advance(p, s, target, one_of(p->urgency, action.w), action.z, bar, nxt, t, last, aux);
}

// A fresh episode: flat, with the initial capital as cash and peak.
inline EpisodeState reset(const MarketParams *p)
{
    EpisodeState s = {0};
    s.cash = p->initial_capital;
    s.portfolio_val = p->initial_capital;
    s.peak_equity = p->initial_capital;
    s.prev_equity = p->initial_capital;
    return s;
}

// A row after the episode's end: no decision, no reward.
inline StepResult dead_step(void)
{
    StepResult r = {0};
    r.end = END_DEAD;
    return r;
}
