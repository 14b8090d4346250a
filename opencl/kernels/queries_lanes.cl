// The scenario network's queries for CPUs, LANES (16) episodes side by side.
// A row of the bar table: tokens [SCENARIOS][HORIZON][LATENT], calendar queries
// [SCENARIOS][LATENT] from CALENDAR_AT on, scenario weights [SCENARIOS] from SHARE_AT on, what the
// calendar queries read of the bar [N_CALENDAR] from INPUT_AT on.

// Four floats of each of 16 rows, turned: out[k] holds float `at + k` of every row.
inline void gather_4(__global const float *const *row, const int at, lanes_t *out)
{
    float8 half_[2][4];
    for (int i = 0; i < 2; i++) {
        __global const float *const *r = row + 8 * i;
        const float8 a = (float8)(vload4(0, r[0] + at), vload4(0, r[4] + at));
        const float8 b = (float8)(vload4(0, r[1] + at), vload4(0, r[5] + at));
        const float8 c = (float8)(vload4(0, r[2] + at), vload4(0, r[6] + at));
        const float8 d = (float8)(vload4(0, r[3] + at), vload4(0, r[7] + at));
        const float8 ab = (float8)(a.s0, b.s0, a.s1, b.s1, a.s4, b.s4, a.s5, b.s5);
        const float8 cd = (float8)(c.s0, d.s0, c.s1, d.s1, c.s4, d.s4, c.s5, d.s5);
        const float8 ab2 = (float8)(a.s2, b.s2, a.s3, b.s3, a.s6, b.s6, a.s7, b.s7);
        const float8 cd2 = (float8)(c.s2, d.s2, c.s3, d.s3, c.s6, d.s6, c.s7, d.s7);
        half_[i][0] = (float8)(ab.s01, cd.s01, ab.s45, cd.s45);
        half_[i][1] = (float8)(ab.s23, cd.s23, ab.s67, cd.s67);
        half_[i][2] = (float8)(ab2.s01, cd2.s01, ab2.s45, cd2.s45);
        half_[i][3] = (float8)(ab2.s23, cd2.s23, ab2.s67, cd2.s67);
    }
    for (int k = 0; k < 4; k++) {
        out[k] = (lanes_t)(half_[0][k], half_[1][k]);
    }
}

// A run of n floats of each row; out has room for the next multiple of 4.
inline void gather(__global const float *const *row, const int at, const int n, lanes_t *out)
{
    for (int k = 0; k < n; k += 4) {
        gather_4(row, at + k, out + k);
    }
}

// One query element: a bias and the weights of those portfolio floats whose bit is set in mask.
inline lanes_t project_lanes(__global const float *w, const lanes_t *f, const int mask)
{
    lanes_t sum = (lanes_t)(w[0]);
    int next = 1;
    for (int k = 0; k < N_PORTFOLIO; k++) {
        if (mask >> k & 1) {
            sum = fma((lanes_t)(w[next]), f[k], sum);
            next++;
        }
    }
    return sum;
}

// The task context [3][SCENARIOS][LATENT]: queries of balance, position and calendar.
inline void task_context(const Policy *p, __global const float *const *row, const lanes_t *f,
                         lanes_t *context)
{
    const int n = SCENARIOS * LATENT;
    for (int e = 0; e < n; e++) {
        context[e] = project_lanes(p->query + 8 * e, f, BALANCE_MASK);
        context[n + e] = project_lanes(p->query + 8 * (n + e), f, POSITION_MASK);
    }
    gather(row, CALENDAR_AT, n, context + 2 * n);
}
