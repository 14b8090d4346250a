// The portfolio part of the state vector. Twin of backtest/market/portfolio.py.

inline void portfolio_state(const MarketParams *p, const EpisodeState *s, const Bar bar,
                            const int t, float *out) // [N_PORTFOLIO]
{
    const float scale = reward_scale(p, bar.sigma);
    const float move = bar.close - s->entry_price;
    const float peak = s->peak_equity;
    const float equity = s->prev_equity;
    out[0] = s->position / p->max_position;
    out[1] = s->position * move * p->mult / scale;
    out[2] = log1p(s->hold_time) * HOLD_UNIT;
    out[3] = log1p(s->flat_counter) * HOLD_UNIT;
    out[4] = (peak - equity) / (p->dd_threshold * peak);
    out[5] = (equity - p->initial_capital) / (100.0f * scale);
    out[6] = s->trade_pnl / scale;
    out[7] = s->dd_excess / scale;
    out[8] = (float)min(t, DSR_WARMUP) / (float)DSR_WARMUP;
    out[9] = s->dsr_A * equity / scale;
    out[10] = sqrt(max(s->dsr_B, 0.0f)) * equity / scale;
    if (CALIBRATED) {
        out[11] = s->position != 0.0f ? move / max(bar.sigma, p->tick_size) : 0.0f;
        out[12] = s->aux_at_entry;
    } else {
        out[11] = s->pnl_ema / scale;
        out[12] = sqrt(s->pnl_var) / scale;
    }
    for (int i = 0; i < N_PORTFOLIO; i++) {
        out[i] = clip(out[i], -STATE_LIMIT, STATE_LIMIT);
    }
}
