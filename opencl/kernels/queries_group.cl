// The scenario network's queries for GPUs, one element at a time; they are computed where used.

// One query element of one episode: a bias and the weights of those portfolio floats whose bit is
// set in mask; w holds eight floats, f is the episode's column.
inline float project(__global const float *w, __local const float *f, const int mask)
{
    const float4 a = ((__global const float4 *)w)[0];
    const float4 b = ((__global const float4 *)w)[1];
    const float weight[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    float sum = weight[0];
    int next = 1;
#pragma unroll N_PORTFOLIO
    for (int k = 0; k < N_PORTFOLIO; k++) {
        if (mask >> k & 1) {
            sum = fma(weight[next], f[k * ROW], sum);
            next++;
        }
    }
    return sum;
}

// Element e of an episode's task context [3][SCENARIOS][LATENT]; row is that of its bar.
inline float query_element(const Policy *p, __global const float *row, __local const float *f, const int e)
{
    const int n = SCENARIOS * LATENT;
    if (e >= 2 * n) {
        return row[CALENDAR_AT + e - 2 * n];
    }
    return e < n ? project(p->query + 8 * e, f, BALANCE_MASK) : project(p->query + 8 * e, f, POSITION_MASK);
}
