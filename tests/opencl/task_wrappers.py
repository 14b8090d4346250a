"""Kernels that let a test call the functions of task_*.cl on their own."""

LANES = """
__kernel void test_search(__global const float *given, __global const float *keys,
                          __global const float *center, __global const float4 *entries,
                          __global const uchar *disagree, __global const float *shift,
                          __global const float *guess, const int count, __global int *slots,
                          __global float *out)
{
    Policy p;
    p.keys = keys;
    p.center = center;
    p.entries = entries;
    p.disagree = disagree;
    p.shift = shift;
    lanes_t context[TASK_ROW];
    int slot[LANES];
    for (int i = 0; i < LANES; i++) {
        slot[i] = MISS;
    }
    for (int e = 0; e < TASK_DIM; e++) {
        context[e] = vload16(e, given);
    }
    search_lanes(&p, context, count, slot);
    correct_lanes(&p, slot, context);
    for (int i = 0; i < LANES; i++) {
        slots[i] = slot[i];
    }
    for (int e = 0; e < TASK_DIM; e++) {
        vstore16(context[e], e, out);
    }
}

__kernel void test_climb(__global const float *x, __global float *out, __global int *reversed)
{
    lanes_t tree[7 * (SLOTS + 1)];
    for (int c = 0; c < 64; c++) {
        lanes_t part[2];
        part[0] = vload16(reverse_6(c), x);
        part[1] = part[0] * 2.0f;
        climb(tree, 2, c, part);
        reversed[c] = reverse_6(c);
    }
    vstore16(tree[6 * (SLOTS + 1)], 0, out);
    vstore16(tree[6 * (SLOTS + 1) + 1], 1, out);
}

// One group of 16 an item: its portfolio and inputs, the context and what is found.
__kernel void test_guess(__global const float *query, __global const float *table,
                         __global const float *portfolio, __global const float4 *entries,
                         __global const uchar *disagree, __global const float *guess,
                         __global int *slots, __global int *sure, __global float *contexts)
{
    const int i = get_global_id(0);
    Policy p;
    p.query = query;
    p.entries = entries;
    p.disagree = disagree;
    p.guess = guess;
    __global const float *row[LANES];
    lanes_t f[N_PORTFOLIO], input[N_CALENDAR + 3], context[TASK_ROW];
    int slot[LANES];
    for (int k = 0; k < LANES; k++) {
        row[k] = table + (LANES * i + k) * BAR_ROW;
    }
    for (int k = 0; k < N_PORTFOLIO; k++) {
        f[k] = vload16(i * N_PORTFOLIO + k, portfolio);
    }
    task_context(&p, row, f, context);
    gather(row, INPUT_AT, N_CALENDAR, input);
    sure[i] = guess_lanes(&p, f, input, LANES, slot) && live_slots(&p) > 0;
    for (int k = 0; k < LANES; k++) {
        slots[LANES * i + k] = slot[k];
    }
    for (int e = 0; e < TASK_DIM; e++) {
        vstore16(context[e], i * TASK_DIM + e, contexts);
    }
}

__kernel void test_guess_holds(__global const float *score, const float error, __global int *holds,
                               __global float *third)
{
    Guess g = guess_none();
    for (int n = 0; n < 4; n++) {
        g = guess_partial(g, score[get_global_id(0) * 4 + n], n);
    }
    holds[get_global_id(0)] = guess_holds(&g, error);
    third[get_global_id(0)] = g.third;
    third[get_global_size(0) + get_global_id(0)] = guess_error(1.0f, 0.5f) * 0x1.0p+24f;
}
"""
GROUP = """
__kernel void test_guess_sum(__global const float *guess, __global const float *u,
                             __global float *out)
{
    Policy p;
    p.guess = guess;
    float mine[GUESS];
    for (int k = 0; k < GUESS; k++) {
        mine[k] = u[k];
    }
    out[get_global_id(0)] = guess_sum(&p, get_global_id(0), mine);
}

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void test_search(
    __global const float *query, __global const float *table, __global const float *portfolio,
    __global const float *keys, __global const float *center, __global const float4 *entries,
    __global const uchar *disagree, __global const float *shift, __global const float *guess,
    __global int *slots, __global int *guessed, __global int *sure, __global int *both,
    __global float *context)
{
    __local float h[H_SIZE] __attribute__((aligned(16)));
    __local float room[ROOM_ROWS * ROW] __attribute__((aligned(16)));
    __local float f[N_PORTFOLIO * ROW];
    __local int place[TILE], slot[TILE], list[TILE], unsure;
    Policy p;
    p.query = query;
    p.table = table;
    p.keys = keys;
    p.center = center;
    p.entries = entries;
    p.disagree = disagree;
    p.guess = guess;
    const int j = get_local_id(0);
    const int first = get_group_id(0) * TILE;
    if (j < TILE) {
        place[j] = first + TILE - 1 - j; // rows in the reverse order
        for (int k = 0; k < N_PORTFOLIO; k++) {
            f[k * ROW + j] = portfolio[(first + j) * N_PORTFOLIO + k];
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    search_task(&p, place, f, 1, slot, &unsure, h, room); // step 1: one row further
    if (j < TILE) {
        both[first + j] = slot[j];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    __local float *total = SEARCH_IN_H ? h : room;
    guess_group(&p, place, f, 1, total, slot, list, &unsure);
    if (j < TILE) {
        guessed[first + j] = slot[j];
        sure[first + j] = 1;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (j < unsure) {
        sure[first + list[j]] = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (j < TILE) {
        list[j] = TILE - 1 - j;
        slot[j] = MISS;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    search_group(&p, place, f, 1, list, TILE, total + (SLOTS + GUESS + 1) * ROW, total, slot);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (j < TILE) {
        slots[first + j] = slot[j];
        for (int e = 0; e < TASK_DIM; e++) {
            context[(first + j) * TASK_DIM + e] =
                query_element(&p, table + (place[j] + 1) * BAR_ROW, f + j, e);
        }
    }
}
"""
