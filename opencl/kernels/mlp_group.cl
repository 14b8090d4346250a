// The mlp's first layer for GPUs: a row of the bar table, and the portfolio's part.

// The first layer of episodes at rows `place + t` of the table, rectified, into h. Nothing of an
// earlier step is kept, and no bank is searched. Ends behind a barrier.
inline void encode(const Policy *p, __local const int *place, __local const float *f, const int count,
                   const int t, __global float *past, __local int *slot, __local int *unsure,
                   __local hidden_t *h, __local float *room)
{
    const int j = get_local_id(0);
    for (int i = j; i < HIDDEN1 * TILE / 4; i += GROUP) {
        const int neuron = i % HIDDEN1;
        const int e = i / HIDDEN1 * 4;
        __global const float *column = p->table + (long)t * BAR_ROW + neuron;
        float4 sum = (float4)(column[(long)place[e] * BAR_ROW], column[(long)place[e + 1] * BAR_ROW],
                              column[(long)place[e + 2] * BAR_ROW], column[(long)place[e + 3] * BAR_ROW]);
        for (int k = 0; k < N_PORTFOLIO; k++) {
            sum = fma((float4)(p->w1[k * HIDDEN1 + neuron]), *(__local const float4 *)(f + k * ROW + e), sum);
        }
        *(__local float4 *)(h + neuron * ROW + e) = max(sum, (float4)(0.0f));
    }
    if (j < TILE) {
        slot[j] = MISS;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}
