// Which skill a query retrieves: ordered sums, scores, the two best slots, abstention.
// Twin of backtest/agent/bank/ordered.py and retrieval.py. Lanes beyond the end of a row add
// nothing, which is what zeros would add.

// 64 accumulators: lane i holds the sum of elements i, i + 64, ...
typedef struct {
    float16 a; // lanes 0-15
    float16 b; // lanes 16-31
    float16 c; // lanes 32-47
    float16 d; // lanes 48-63
} Lanes;

// The two best of the scores seen so far; equal scores rank by slot, the lowest first.
typedef struct {
    float first;  // -INFINITY: none
    float second; // -INFINITY: none
    int slot;     // of first, MISS: none
    int other;    // slot of second, MISS: none
} Best;

inline Lanes lanes_zero(void)
{
    Lanes s;
    s.a = (float16)(0.0f);
    s.b = (float16)(0.0f);
    s.c = (float16)(0.0f);
    s.d = (float16)(0.0f);
    return s;
}

// Sum of the lanes: a tree of 32, 16, 8, 4, 2, 1.
inline float lanes_sum(const Lanes s)
{
    const float16 x = (s.a + s.c) + (s.b + s.d);
    const float8 y = x.lo + x.hi;
    const float4 z = y.lo + y.hi;
    const float2 w = z.lo + z.hi;
    return w.lo + w.hi;
}

// The same, of 64 floats of one work-item.
inline float lanes_of(const float *lane)
{
    Lanes s;
    s.a = vload16(0, lane);
    s.b = vload16(1, lane);
    s.c = vload16(2, lane);
    s.d = vload16(3, lane);
    return lanes_sum(s);
}

// The same, of 64 floats in local memory that begin at a multiple of 16 bytes.
inline float lanes_total(__local const float *lane)
{
    __local const float4 *x = (__local const float4 *)lane;
    const float4 a = (x[0] + x[8]) + (x[4] + x[12]);
    const float4 b = (x[1] + x[9]) + (x[5] + x[13]);
    const float4 c = (x[2] + x[10]) + (x[6] + x[14]);
    const float4 d = (x[3] + x[11]) + (x[7] + x[15]);
    const float4 z = (a + c) + (b + d);
    const float2 w = z.lo + z.hi;
    return w.lo + w.hi;
}

// The same sum by a work-group of 64-item parts: item i of a part brings lane i in `mine`, and
// every item gets the total. Every item of the group must call it; `part` is 64 floats of local
// memory for each part.
inline float group_sum(__local float *part, const int i, const float mine)
{
    part[i] = mine;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int width = 32; width > 0; width >>= 1) {
        if (i < width) {
            part[i] = part[i] + part[i + width];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    const float total = part[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    return total;
}

// Elements k to k + 15 of a row of `dim`, 0 behind its end.
inline float16 load_16(__global const float *x, const int k, const int dim)
{
    if (k + 16 <= dim) {
        return vload16(0, x + k);
    }
    float tail[16];
    for (int i = 0; i < 16; i++) {
        tail[i] = k + i < dim ? x[k + i] : 0.0f;
    }
    return vload16(0, tail);
}

// ScoreSlots: ordered sum of x*y by one work-item; with y = x the square of a norm.
inline float score_slots(__global const float *x, __global const float *y, const int dim)
{
    Lanes s = lanes_zero();
    int k = 0;
    for (; k + 64 <= dim; k += 64) {
        s.a = s.a + vload16(0, x + k) * vload16(0, y + k);
        s.b = s.b + vload16(1, x + k) * vload16(1, y + k);
        s.c = s.c + vload16(2, x + k) * vload16(2, y + k);
        s.d = s.d + vload16(3, x + k) * vload16(3, y + k);
    }
    if (k < dim) {
        float tail[64];
        for (int i = 0; i < 64; i++) {
            tail[i] = k + i < dim ? x[k + i] * y[k + i] : 0.0f;
        }
        s.a = s.a + vload16(0, tail);
        s.b = s.b + vload16(1, tail);
        s.c = s.c + vload16(2, tail);
        s.d = s.d + vload16(3, tail);
    }
    return lanes_sum(s);
}

// Cosine of a query and a key from their ordered sums.
inline float cosine(const float dot_, const float query_norm, const float key_norm)
{
    return dot_ / (query_norm * key_norm);
}

// ScoreFinalize: the score of one slot, -INFINITY unless it may be retrieved. square is the
// query's, without one no slot is found; the threshold is on the cosine alone.
inline float score_finalize(const float dot_, const float square, const float key_norm,
                            const uchar eligible, const float bonus, const float threshold)
{
    const float similarity = cosine(dot_, sqrt(square), key_norm);
    const bool known = square >= LEAST_SQUARE && square < INFINITY;
    return known && eligible != 0 && similarity >= threshold ? similarity + bonus : -INFINITY;
}

inline Best best_none(void)
{
    Best b;
    b.first = -INFINITY;
    b.second = -INFINITY;
    b.slot = MISS;
    b.other = MISS;
    return b;
}

// Arg-max, Partial: offer a slot that stands above all seen before.
inline Best arg_max_partial(Best b, const float score, const int slot)
{
    if (score > b.first) {
        b.second = b.first;
        b.other = b.slot;
        b.first = score;
        b.slot = slot;
    } else if (score > b.second) {
        b.second = score;
        b.other = slot;
    }
    return b;
}

// Arg-max, Merge: b saw slots above all that a saw.
inline Best arg_max_merge(Best a, const Best b)
{
    a = arg_max_partial(a, b.first, b.slot);
    return arg_max_partial(a, b.second, b.other);
}

// The retrieved slot, MISS or ABSTAIN. disagree is [slots][slots].
inline int arg_max_slot(const Best b, __global const uchar *disagree, const int slots)
{
    if (b.other != MISS && b.first - b.second <= CLOSE_SCORES && disagree[b.slot * slots + b.other]) {
        return ABSTAIN;
    }
    return b.slot;
}
