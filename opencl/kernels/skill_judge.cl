// Kernels that judge the skills of M banks: influence of applications, utility, the end of a
// collection. They read and write scalars of slots only; item m works on bank m.

// The scalars of bank m.
inline BankView bank_scalars(const BankRules *p, const int m, __global BankHead *head,
                             __global BankSkill *skills, __global long *counters)
{
    BankView b;
    b.head = head + m;
    b.skills = skills + (long)m * (p->slots + p->pool);
    b.counters = counters + m * N_COUNTERS;
    return b;
}

// Influence of `rows` applications a bank: before, after [M][rows][dim], the residuals at h and
// h + shift; slots [M][rows], 0 without one; shift [M][slots][dim]. On a GPU a group of 64 takes a
// row, on a CPU one item.
__kernel void bank_influence(
    const BankRules rules, __global const float *before, __global const float *after,
    __global const float *shift, __global const int *slots, const int rows,
    __global float *influence)
{
    const long row = get_group_id(0);
    const int m = row / rows;
    const long at = row * rules.dim;
    __global const float *mine =
        shift + ((long)m * rules.slots + max(slots[row], 0)) * rules.dim;
    const bool trapezoid = rules.trapezoid != 0;
#if ITEMS > 1
    __local float part[64];
    const int i = get_local_id(0);
    const float total = group_sum(
        part, i, influence_partial(before + at, after + at, mine, rules.dim, i, trapezoid));
#else
    float lane[64];
    for (int i = 0; i < 64; i++) {
        lane[i] = influence_partial(before + at, after + at, mine, rules.dim, i, trapezoid);
    }
    const float total = lanes_of(lane);
#endif
    if (get_local_id(0) == 0) {
        influence[row] = slots[row] < 0 ? 0.0f : total;
    }
}

// Whole episodes in their order: add the influence of each step to its slot, then move the
// utilities by the episode's Delta. slots, influence [M][episodes][steps], slot < 0: none;
// delta [M][episodes], null: influence is only added.
__kernel void bank_episodes(const BankRules rules, __global BankHead *head,
                            __global BankSkill *skills, __global long *counters,
                            __global const int *slots, __global const float *influence,
                            __global const float *delta, const int episodes, const int steps)
{
    const int m = get_global_id(0);
    const BankView b = bank_scalars(&rules, m, head, skills, counters);
    for (int e = 0; e < episodes; e++) {
        const long first = ((long)m * episodes + e) * steps;
        for (long at = first; at < first + steps; at++) {
            if (slots[at] >= 0 && !influence_accumulate(b.skills + slots[at], influence[at])) {
                b.counters[COUNT_NON_FINITE] += 1;
            }
        }
        if (delta != 0) {
            end_episode(&rules, &b, delta[(long)m * episodes + e]);
        }
    }
}

// A round of solo rollouts: mean [M][slots], the mean Delta of each slot; harmful [M][slots].
__kernel void bank_solo(const BankRules rules, __global BankHead *head,
                        __global BankSkill *skills, __global long *counters,
                        __global const float *mean, __global const int *harmful)
{
    const int m = get_global_id(0);
    const BankView b = bank_scalars(&rules, m, head, skills, counters);
    for (int n = 0; n < rules.slots; n++) {
        const int at = m * rules.slots + n;
        const int moved = solo_slot(&rules, b.skills + n, mean[at], harmful[at]);
        b.counters[COUNT_UTILITY_UPDATES] += moved > 0;
        b.counters[COUNT_UTILITY_SKIPS] += moved < 0;
    }
}

// What rollouts did: added, retrieved [M][slots]; misses, abstentions [M].
__kernel void bank_uses(const BankRules rules, __global BankHead *head,
                        __global BankSkill *skills, __global long *counters,
                        __global long *uses, __global const long *added,
                        __global const int *retrieved, __global const long *misses,
                        __global const long *abstentions)
{
    const int m = get_global_id(0);
    const BankView b = bank_scalars(&rules, m, head, skills, counters);
    for (int n = 0; n < rules.slots; n++) {
        const int at = m * rules.slots + n;
        uses[at] += added[at];
        b.skills[n].retrieved |= retrieved[at] != 0;
        b.counters[COUNT_HITS] += added[at];
    }
    b.counters[COUNT_MISSES] += misses[m];
    b.counters[COUNT_ABSTENTIONS] += abstentions[m];
}

__kernel void bank_close(const BankRules rules, __global BankHead *head,
                         __global BankSkill *skills, __global long *counters)
{
    const BankView b = bank_scalars(&rules, get_global_id(0), head, skills, counters);
    close_collection(&rules, &b);
}
