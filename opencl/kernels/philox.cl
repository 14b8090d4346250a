// Philox4x32-10 and its uniform numbers; twin of backtest/rng.py, which defines them.
// A number depends on its key and counter alone: no state to keep, none to store.

// One block of four words. The constants PHILOX_* are rendered from Python.
static inline uint4 philox4x32_10(uint4 counter, uint2 key)
{
    for (int i = 0; i < PHILOX_ROUNDS; i++) {
        const uint high0 = mul_hi(counter.x, PHILOX_M0), low0 = counter.x * PHILOX_M0;
        const uint high1 = mul_hi(counter.z, PHILOX_M1), low1 = counter.z * PHILOX_M1;
        counter = (uint4)(high1 ^ counter.y ^ key.x, low1, high0 ^ counter.w ^ key.y, low0);
        key += (uint2)(PHILOX_W0, PHILOX_W1);
    }
    return counter;
}

// Counter word 0 of a stage (STAGE_*) and its round, both below 2^16.
static inline uint stream(uint stage, uint round_)
{
    return stage << 16 | round_;
}

// In [0, 1), a multiple of 2^-24: exact, so the same on every device.
// (int)(uniform * n) is a fair integer in [0, n) for n < 2^24.
static inline float uniform(uint2 key, uint stream_, uint episode, uint t, uint draw)
{
    const uint x = philox4x32_10((uint4)(stream_, episode, t, draw), key).x;
    return (float)(x >> 8) * 0x1.0p-24f;
}
