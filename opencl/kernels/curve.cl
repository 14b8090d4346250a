// What daily figures need of equity curves that lie on the device. One work-item reads one curve.

// Equity at the end of every session, and the deepest fall: (peak - equity)/peak, the capital being
// the first peak. n counts the curves' whole work-groups; the last end is the last step.
__kernel void curve_sessions(__global const float *restrict equity, // [steps][n], currency
                             __global const int *restrict ends,     // [sessions], last step of each
                             __global float *restrict closing,      // [sessions][n], currency
                             __global float *restrict drawdown,     // [n]
                             const float capital, const int n, const int sessions)
{
    const size_t i = get_global_id(0);
    float peak = capital, deepest = 0.0f;
    int t = 0;
    for (int s = 0; s < sessions; s++) {
        float now = 0.0f;
        for (; t <= ends[s]; t++) {
            now = equity[(size_t)t * n + i];
            peak = max(peak, now);
            deepest = max(deepest, (peak - now) / peak);
        }
        closing[(size_t)s * n + i] = now;
    }
    drawdown[i] = deepest;
}
