// The mlp's first layer for CPUs: a row of the bar table, and the portfolio's part.

// Nothing of an earlier step is kept, and no bank is searched.
inline void encode(const Policy *p, const int *row, const lanes_t *f, const int count, const int t,
                   lanes_t *past, int *slot, lanes_t *a)
{
    for (int i = 0; i < LANES; i++) {
        __global const float *mine = p->table + (long)(row[i] + t) * BAR_ROW;
        for (int j = 0; j < HIDDEN1; j++) {
            ((float *)&a[j])[i] = mine[j];
        }
        slot[i] = MISS;
    }
    for (int j = 0; j < HIDDEN1; j++) {
        lanes_t sum = a[j];
        for (int k = 0; k < N_PORTFOLIO; k++) {
            sum = fma((lanes_t)(p->w1[j * N_PORTFOLIO + k]), f[k], sum);
        }
        a[j] = fmax(sum, (lanes_t)(0.0f));
    }
}
