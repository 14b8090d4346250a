// The composite reward. Twin of backtest/market/reward.py: same names, same order of operations.

inline float clip(const float x, const float low, const float high) { return min(max(x, low), high); }

// One sigma (at least a tick) of a full position, in currency.
inline float reward_scale(const MarketParams *p, const float sigma)
{
    return max(sigma, p->tick_size) * p->mult * p->max_position;
}

// Differential Sharpe ratio (Moody & Saffell 2001) from the moments A, B before the step.
inline float differential_sharpe(const MarketParams *p, const float A, const float B,
                                 const float dA, const float dB, const float floor_,
                                 const float exposure, const int t)
{
    const float numerator = B * dA - 0.5f * A * dB;
    const float variance = B - A * A;
    if (!CALIBRATED) {
        const float x = max(fabs(variance), p->dsr_epsilon);
        return numerator / (x * sqrt(x));
    }
    const float x = max(variance, floor_ * floor_);
    const float dsr = clip(numerator / (x * sqrt(x)), -1.0f, 1.0f) * exposure;
    return t < DSR_WARMUP ? 0.0f : dsr;
}

// The step's PnL as a z-score; literal: of the policy's own history.
inline float pnl_score(const MarketParams *p, const float gross, const float tx_cost,
                       const float ema, const float var, const float unit)
{
    if (CALIBRATED) {
        return clip((gross - tx_cost) * unit, -Z_LIMIT, Z_LIMIT);
    }
    return (gross - ema) / sqrt(var + 1e-8f);
}

// Drawdown term; calibrated: only what deepens the drawdown beyond dd_excess.
inline float drawdown_penalty(const MarketParams *p, const float peak, const float equity,
                              const float excess, const float dd_excess, const float unit)
{
    if (CALIBRATED) {
        return min(max(0.0f, excess - dd_excess) * unit, Z_LIMIT);
    }
    const float depth = peak > 0.0f ? (peak - equity) / peak : 0.0f;
    return max(0.0f, depth - p->dd_threshold);
}

// Result of a closed trade as the reward counts it: in scales; literal: in currency.
inline float trade_outcome(const MarketParams *p, const float result, const float unit)
{
    return CALIBRATED ? result * unit : result;
}

// Calibrated extra charge of a trade that closed at a loss.
inline float loss_penalty(const MarketParams *p, const bool closed, const float outcome)
{
    const float loss = min(max(0.0f, -outcome), Z_LIMIT);
    const float charge = (p->loss_aversion - 1.0f) * loss;
    return closed ? charge : 0.0f;
}

// r_aux of one closed trade, never negative.
inline float trade_bonus(const MarketParams *p, const bool closed, const float aux,
                         const float position, const float outcome)
{
    const float alignment = max(0.0f, position > 0.0f ? aux : -aux);
    float profit = max(0.0f, outcome);
    if (CALIBRATED) {
        profit = min(profit, Z_LIMIT);
    }
    return closed ? p->scale_beta * alignment * profit : 0.0f;
}

// Regime factors in [0.5, 2] from the raw ADX (0-100); *vol from the raw CUSUM.
inline float regime(const MarketParams *p, const float adx, const float cusum, float *vol)
{
    const float reference = CALIBRATED ? p->cusum_ref : 0.5f;
    *vol = clip(cusum * (1.0f / reference), 0.5f, 2.0f);
    return clip(adx * (1.0f / 25.0f), 0.5f, 2.0f);
}

// The reward: weighted terms added left to right.
inline float weighted_sum(const MarketParams *p, const StepResult *c)
{
    float balance = 2.0f - c->trend;
    if (CALIBRATED) {
        balance = clip(balance, 0.5f, 1.5f);
    }
    float total = p->w_dsr * balance * c->dsr;
    total = total + p->w_pnl * c->trend * c->asym;
    total = total - p->w_dd * c->vol * c->dd_penalty;
    total = total - p->w_idle * c->idle;
    total = total - c->hold_rent;
    if (!CALIBRATED) {
        total = total - c->tx_cost;
    }
    return total + c->r_aux;
}
