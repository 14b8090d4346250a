// The scenario network's parts that depend on the bar alone and are no dense layers: scenario
// weights and calendar queries; bar_tokens_*.cl has the tokens. Rows of a table as in queries_lanes.cl; bar 0 of a
// launch is row `first_row` of all tables, bar `first` of the states. Global sizes name the fastest
// dimension first.

// Scenario weights: a table's logits become their softmax; global size (bars or more).
__kernel void bar_share(__global float *restrict table, // [...][BAR_ROW]
                        const int first_row, const int bars)
{
    if (get_global_id(0) >= bars) {
        return;
    }
    __global float *share = table + (first_row + (long)get_global_id(0)) * BAR_ROW + SHARE_AT;
    float p[SCENARIOS];
    float top = share[0];
    for (int s = 1; s < SCENARIOS; s++) {
        top = max(top, share[s]);
    }
    float den = 0.0f;
    for (int s = 0; s < SCENARIOS; s++) {
        p[s] = exp(share[s] - top);
        den = den + p[s];
    }
    for (int s = 0; s < SCENARIOS; s++) {
        share[s] = p[s] / den;
    }
}

// Calendar queries into a table, and what they read; column holds its N_CALENDAR places in a state.
// Global size (SCENARIOS*LATENT, bars or more).
__kernel void bar_calendar(__global const float *restrict x,      // [...][N_BAR_PART]
                           __global const int *restrict column,   // [N_CALENDAR]
                           __global const float *restrict weight, // [N_CALENDAR][SCENARIOS*LATENT]
                           __global const float *restrict bias,   // [SCENARIOS*LATENT]
                           __global float *restrict table,        // [...][BAR_ROW]
                           const int first, const int first_row, const int bars)
{
    if (get_global_id(1) >= bars) {
        return;
    }
    const int e = get_global_id(0);
    const long bar = first + get_global_id(1);
    const long row = first_row + get_global_id(1);
    float sum = bias[e];
    for (int k = 0; k < N_CALENDAR; k++) {
        const float w = weight[k * SCENARIOS * LATENT + e];
        sum = fma(w, x[bar * N_BAR_PART + column[k]], sum);
    }
    table[row * BAR_ROW + CALENDAR_AT + e] = sum;
    if (e == 0) {
        for (int k = 0; k < N_CALENDAR; k++) {
            table[row * BAR_ROW + INPUT_AT + k] = x[bar * N_BAR_PART + column[k]];
        }
    }
}
