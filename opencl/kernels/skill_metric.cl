// A bank on a device, and ordered sums over its rows, by a work-group of ITEMS items that share it:
// whole 64s on a GPU, one item a lane of a sum; a single one on a CPU, with 16 lanes in a vector.
// Scalars are moved by item 0, vectors by all items; `fence` stands between the two.

// One bank's arrays. Rows of skills are `slots` slots, then `pool` candidates.
typedef struct {
    __global BankHead *head;
    __global BankSkill *skills;  // [slots + pool]
    __global long *uses;         // [slots]
    __global float *keys;        // [slots + pool][key_dim], centred
    __global float *directions;  // [slots + pool][dim], unit
    __global float *corrections; // [slots + pool][dim]
    __global BankCell *cells;    // [cells]
    __global float *cell_keys;   // [cells][key_dim]
    __global float *cell_sum;    // [cells][dim]
    __global long *counters;     // [N_COUNTERS]
} BankView;

// What item 0 decided and all items carry out.
typedef struct {
    int go;       // 1: an observation waits for the next stage
    float xx;     // the square of its x
    float gg;     // and of its g
    int row;      // of skills that takes the observation
    int blend;    // 1: it is moved towards the observation, 0: it starts again from it
    int decision; // Decision
    int slot;     // of MATCH, FREE, EVICT
    int target;   // slot that candidate `row` is copied to, MISS: none
    int freed;    // 1: candidate `row` is emptied
    int cell;     // that takes the observation
    int opened;   // 1: it starts with it
    int count;    // terms of the sum that the cell emits, 0: it emits nothing
    float size;   // |g|
} Plan;

// The observation in work, and where the items meet.
typedef struct {
    __global float *x;    // [key_dim], centred context
    __global float *g;    // [dim], pseudo-residual
    __global float *unit; // [dim], g/|g|
    __local float *part;  // [CHUNK][PART_ROW], lanes
    __local float *sum;   // [2*(slots + pool) + 2] or [cells + 2]
    __local Plan *plan;
} Work;

// Barriers are for groups: some versions of PoCL fail on those that a whole group passes or skips.
inline void fence(void)
{
#if ITEMS > 1
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
#endif
}

inline BankSkill no_skill(void)
{
    BankSkill s;
    s.scale = s.utility = s.mass = s.influence = s.agreement = 0.0f;
    s.key_square = s.direction_square = 0.0f;
    s.observations = s.used = s.state = s.age = s.protection = s.retrieved = s.contacts = 0;
    s.streak = s.clock = 0;
    return s;
}

// MetricPartial: lane i of the ordered sum of x*y.
inline float metric_partial(__global const float *x, __global const float *y, const int dim,
                            const int i)
{
    float s = 0.0f;
    for (int d = i; d < dim; d += 64) {
        s = s + x[d] * y[d];
    }
    return s;
}

// sum[r] = total of the lanes in row r of part.
inline void metric_total(const Work *w, const int count, __local float *sum)
{
    fence();
    for (int r = get_local_id(0); r < count; r += ITEMS) {
        sum[r] = lanes_total(w->part + r * PART_ROW);
    }
    fence();
}

// sum[r] = ordered sum of rows[r]*x, [count][dim]; the 64s of items share the rows.
inline void metric_rows(const Work *w, __global const float *rows, __global const float *x,
                        const int dim, const int count, __local float *sum)
{
#if ITEMS > 1
    const int i = get_local_id(0) % 64;
    for (int first = 0; first < count; first += CHUNK) {
        const int n = min(CHUNK, count - first);
        for (int r = get_local_id(0) / 64; r < n; r += ITEMS / 64) {
            __global const float *row = rows + (long)(first + r) * dim;
            w->part[r * PART_ROW + i] = metric_partial(row, x, dim, i);
        }
        metric_total(w, n, sum + first);
    }
#else
    for (int r = 0; r < count; r++) {
        sum[r] = score_slots(rows + (long)r * dim, x, dim);
    }
#endif
}

// Ordered sums of x*x and y*y: sum[0], sum[1].
inline void metric_squares(const Work *w, __global const float *x, const int nx,
                           __global const float *y, const int ny, __local float *sum)
{
#if ITEMS > 1
    const int i = get_local_id(0);
    if (i < 64) {
        w->part[i] = metric_partial(x, x, nx, i);
        w->part[PART_ROW + i] = metric_partial(y, y, ny, i);
    }
    metric_total(w, 2, sum);
#else
    sum[0] = score_slots(x, x, nx);
    sum[1] = score_slots(y, y, ny);
#endif
}

// Cosine from a dot product and two squares; -2 where a square counts as zero.
inline float known_cosine(const float dot_, const float a, const float b)
{
    const bool known = a >= LEAST_SQUARE && b >= LEAST_SQUARE;
    const float similarity = cosine(dot_, known ? sqrt(a) : 1.0f, known ? sqrt(b) : 1.0f);
    return known ? similarity : -2.0f;
}
