// Orders and fills. Twin of backtest/market/fill.py: same names, same order of operations.
// min and max, not fmin and fmax: no value is NaN, so nothing has to guard against one.

// values[i] of three. Selects: work-items side by side would make a gather of the load.
inline float one_of(const float *values, const int i)
{
    const float first = values[0];
    const float second = values[1];
    const float third = values[2];
    return i == 0 ? first : (i == 1 ? second : third);
}

// The position an action (direction, magnitude, order, urgency) asks for.
inline float target_position(const MarketParams *p, const float position, const int4 action)
{
    const float size = one_of(p->magnitude, action.y) * p->max_position;
    float target = 0.0f;
    target = action.x == DIRECTION_SHORT ? -size : target;
    target = action.x == DIRECTION_LONG ? size : target;
    return action.x == DIRECTION_HOLD ? position : target;
}

// Units to trade now, signed: whole lots, and no dust left behind.
inline float position_change(const MarketParams *p, const float position,
                             const float target, const float urgency)
{
    float delta = (target - position) * urgency;
    if (WHOLE_LOTS) {
        delta = trunc(delta / p->lot_size) * p->lot_size;
    }
    const bool dust = fabs(position + delta) < DUST * p->max_position;
    return dust ? -position : delta;
}

// Whether an order trades at the close of its own bar.
inline bool at_close(const int order)
{
    return FILLS_AT_CLOSE && order == ORDER_MARKET;
}

// Units filled; *price receives the fill price, close[b+1] where nothing fills.
inline float order_fill(const MarketParams *p, const Bar bar, const Bar nxt,
                        const float c0, const float delta, const int order, float *price)
{
    const bool buy = delta > 0.0f;
    const float distance = one_of(p->offset, order) * bar.sigma;
    const float limit = buy ? c0 - distance : c0 + distance;
    const bool through = buy ? nxt.low < limit : nxt.high > limit;
    const float better = buy ? min(limit, nxt.open) : max(limit, nxt.open);
    const bool market = order == ORDER_MARKET;
    const bool close = at_close(order);
    const float quoted = close ? c0 : (market ? nxt.open : better);
    const uint flags = close ? bar.flags : nxt.flags;
    const bool fills = delta != 0.0f && (flags & BAR_NO_VOLUME) == 0 && (market || through);
    *price = fills ? quoted : nxt.close;
    return fills ? delta : 0.0f;
}
