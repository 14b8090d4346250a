// The way of the direction forecast around the network: forward and backward.
// Twin of backtest/agent/aux_bypass.py. w is centred over the four directions.

// (x + y) + (z + w).
inline float sum4(const float4 v) { return (v.x + v.y) + (v.z + v.w); }

// Sum over the work-group, lane 0's return value; a tree of 32, 16, ..., 1.
inline float4 lane_tree(__local float4 *part, const int lane, const float4 mine)
{
    part[lane] = mine;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int width = BYPASS_LANES / 2; width > 0; width >>= 1) {
        if (lane < width) {
            part[lane] = part[lane] + part[lane + width];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    return part[0];
}

// Q_dir[b][a] += w[a]*s[b]; one work-item a row.
__kernel void aux_to_q_dir_bias(__global const float *restrict w, // [4]
                                __global const float *restrict s, // [rows]
                                __global float *restrict q)       // [rows][4]
{
    const int b = get_global_id(0);
    vstore4(vload4(b, q) + vload4(0, w) * s[b], b, q);
}

// partial[group][a] = sum of s[b]*dq[b][a] over the group's rows: lane i adds rows i, i + 64, ...
// ds[b] += scale * sum_a w[a]*dq[b][a], unless ds is null.
__kernel __attribute__((reqd_work_group_size(BYPASS_LANES, 1, 1))) void aux_to_q_dir_backward(
    __global const float *restrict w,  // [4]
    __global const float *restrict s,  // [rows]
    __global const float *restrict dq, // [rows][4]
    const float scale, const int rows,
    __global float *restrict ds,       // [rows] or null
    __global float *restrict partial)  // [groups][4]
{
    __local float4 part[BYPASS_LANES];
    const int lane = get_local_id(0);
    const int first = get_group_id(0) * BYPASS_ROWS;
    const float4 weight = vload4(0, w);
    float4 sum = (float4)(0.0f);
    for (int b = first + lane; b < min(first + BYPASS_ROWS, rows); b += BYPASS_LANES) {
        const float4 gradient = vload4(b, dq);
        sum = sum + gradient * s[b];
        if (ds != 0) {
            ds[b] = ds[b] + scale * sum4(weight * gradient);
        }
    }
    const float4 total = lane_tree(part, lane, sum);
    if (lane == 0) {
        vstore4(total, get_group_id(0), partial);
    }
}

// dw[a] = scale * sum over groups, less its mean over a; one work-group.
__kernel __attribute__((reqd_work_group_size(BYPASS_LANES, 1, 1))) void aux_to_q_dir_total(
    __global const float *restrict partial, // [groups][4]
    const float scale, const int groups,
    __global float *restrict dw)            // [4]
{
    __local float4 part[BYPASS_LANES];
    const int lane = get_local_id(0);
    float4 sum = (float4)(0.0f);
    for (int group = lane; group < groups; group += BYPASS_LANES) {
        sum = sum + vload4(group, partial);
    }
    const float4 total = lane_tree(part, lane, sum) * scale;
    if (lane == 0) {
        vstore4(total - sum4(total) * 0.25f, 0, dw);
    }
}
