// The mlp's first layer for GPUs: a row of the bar table, and the portfolio's part.

// Nothing of an earlier step is kept, and no bank is searched. Ends behind a barrier.
inline void encode(const Policy *p, __local const int *place, __local const float *f, const int count,
                   const int t, __global float *past, __local int *slot, __local int *unsure,
                   __local float *h1, __local float *room)
{
    const int j = get_local_id(0);
    float sum[TILE];
    for (int neuron = j; neuron < HIDDEN1; neuron += GROUP) {
        for (int e = 0; e < TILE; e++) {
            sum[e] = p->table[(long)(place[e] + t) * BAR_ROW + neuron];
        }
        for (int k = 0; k < N_PORTFOLIO; k++) {
            accumulate(sum, p->w1[k * HIDDEN1 + neuron], f + k * ROW);
        }
        store_row(h1 + neuron * ROW, sum, 0.0f);
    }
    if (j < TILE) {
        slot[j] = MISS;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}
