"""Stages of a whole work-group in skill_update.cl, skill_cells.cl and d2skill.cl, one at a time.

Whole updates (bank_update, admit, learn, bank_tick, bank_turn) are compared in test_bank.py.
"""

import numpy as np
import pytest

from backtest.agent.bank import MISS, Bank, Decision
from backtest.agent.bank import update as definition
from backtest.agent.bank.aggregation import gather
from backtest.agent.bank.lifecycle import tick
from backtest.agent.bank.ordered import cosines, square
from backtest.agent.bank.records import CELL, HEAD, SKILL
from backtest.agent.bank.rough import rough_bank, rough_parameters
from opencl.bank import DeviceBank
from opencl.bank_program import FILES, bank_sizes
from opencl.buffers import empty, upload
from tests.opencl.bank_scenes import assert_same_banks, copy_of

WRAPPERS = """
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void test_stage(
    const BankRules rules, __global BankHead *head, __global BankSkill *skills,
    __global long *uses, __global float *keys, __global float *directions,
    __global float *corrections, __global BankCell *cells, __global float *cell_keys,
    __global float *cell_sum, __global long *counters, __global float *x, __global float *g,
    __global float *unit, __local float4 *part, __local float *sum, __local Plan *plan,
    __global const float *near, const int stage, const int row, const int blend, const float size,
    __global int *out)
{
    const int m = get_group_id(0), j = get_local_id(0);
    const BankView b = bank_view(&rules, m, head, skills, uses, keys, directions, corrections,
                                 cells, cell_keys, cell_sum, counters);
    const Work w = work_of(&rules, m, x, g, unit, part, sum, plan);
    const int all = rules.slots + rules.pool;
    for (int r = j; near != 0 && r < 2 * all + rules.cells; r += ITEMS) {
        sum[r] = near[r];
    }
    if (j == 0) {
        plan->size = size;
        plan->target = plan->slot = plan->row = plan->decision = MISS;
        plan->freed = 0;
        plan->blend = blend;
    }
    fence();
    if (stage == 0) {
        tick_all(&rules, &b, &w);
    } else if (stage == 1) {
        direction_ema(&rules, &b, &w, row);
    } else if (stage == 2) {
        vector_update(&rules, &b, &w, row, blend != 0);
    } else if (stage == 3) {
        promote_slot(&rules, &b, row, blend);
    } else if (stage == 4) {
        empty_vectors(&rules, &b, row);
    } else if (stage == 5) {
        if (j == 0) {
            out[0] = match_slot(&rules, &b, sum, sum + all, plan);
        }
    } else if (stage == 6) {
        if (j == 0) {
            propose_candidate(&rules, &b, sum, sum + all, plan);
        }
    } else {
        if (j == 0) {
            cell_leader(&rules, &b, sum + 2 * all, plan);
        }
        fence();
        cell_update(&rules, &b, &w);
        if (j == 0) {
            out[0] = plan->cell;
            out[1] = plan->opened;
            out[2] = plan->count;
        }
    }
    fence();
    if (j == 0 && stage < 7) {
        out[1] = plan->row;
        out[2] = plan->blend;
        out[3] = plan->decision;
        out[4] = plan->slot;
        out[5] = plan->target;
    }
}
"""
F32 = np.float32
TICK, TURN, VECTORS, PROMOTE, EMPTY, MATCH, PROPOSE, CELLS = range(8)


@pytest.fixture
def program(device, device_program):
    return device_program(FILES, WRAPPERS, bank_sizes(device))


class Stage:
    """One stage on a device's copy of a bank, with an observation in work."""

    def __init__(self, program, bank, x=None, g=None, near=None):
        self.device_bank = DeviceBank(program.device, [bank])
        self.device_bank._program = program
        g = np.ones(bank.dim, F32) if g is None else g
        x = np.ones(bank.key_dim, F32) if x is None else x
        self.size = F32(np.sqrt(square(g)))
        for held, value in zip(self.device_bank._work, (x, g, g / self.size), strict=True):
            held.write(value[None].astype(F32))
        self.seen = definition.Observation(x, square(x), g, g / self.size, self.size)
        self.near = None if near is None else np.concatenate(near).astype(F32)

    def run(self, stage, row=0, blend=0):
        bank = self.device_bank
        out = empty(bank.device, 6, np.int32)
        near = None if self.near is None else upload(bank.device, self.near).buffer
        bank._launch(
            "test_stage", *(w.buffer for w in bank._work), *bank._local(), near, np.int32(stage),
            np.int32(row), np.int32(blend), self.size, out.buffer,
        )  # fmt: skip
        return out.read().tolist()

    def read(self):
        return self.device_bank.read()[0]


def grown(seed, slots=4, key_dim=70, dim=130, **changes):
    """Return a bank with slots of all ages and candidates."""
    parameters = {"aggregate": 1, "similarity_threshold": 0.3, "candidate_pool": 3} | changes
    return rough_bank(
        slots, dim, seed, key_dim=key_dim, rows=40, **(rough_parameters(seed) | parameters)
    )


def vectors(bank, seed):
    rng = np.random.default_rng(seed)
    x, g = rng.normal(0, 1, bank.key_dim), rng.normal(0, 1, bank.dim)
    return x.astype(F32), g.astype(F32)


@pytest.mark.parametrize("seed", range(3))
def test_tick_all(program, seed):
    bank = grown(seed, candidate_ttl=1 + seed)
    stage = Stage(program, bank)
    stage.run(TICK)
    tick(bank.state, bank.rules)
    assert_same_banks([bank], [stage.read()])


@pytest.mark.parametrize("representation", ["direction_magnitude", "full"])
def test_direction_ema(program, representation):
    bank = grown(3, representation=representation, max_correction=0.3)
    x, g = vectors(bank, 3)
    for row in range(3):
        stage = Stage(program, bank, x, g)
        stage.run(TURN, row)
        state, unit = copy_of(bank).state, stage.seen.unit
        direction = definition.turned(state.directions[row], unit, bank.rules)
        state.corrections[row] = definition.rebuilt(
            state.corrections[row], direction, state.scale[row], g, bank.rules
        )
        seen = stage.read().state
        np.testing.assert_array_equal(seen.directions[row], direction)
        np.testing.assert_array_equal(seen.corrections, state.corrections)


@pytest.mark.parametrize("representation", ["direction_magnitude", "full"])
@pytest.mark.parametrize("blend", [0, 1])
def test_vector_update(program, representation, blend):
    """Scalars come first (item 0): the scale here is the one the definition ends with."""
    bank = grown(4, representation=representation, max_correction=3.0)
    x, g = vectors(bank, 4)
    stage = Stage(program, bank, x, g)
    row, state = 1, copy_of(bank).state
    old = definition.Skill(
        state.keys[row], state.directions[row], state.scale[row], state.corrections[row]
    )
    new = (
        definition.blended(old, stage.seen, bank.rules)
        if blend
        else definition.fresh(stage.seen, bank.rules)
    )
    skills = stage.device_bank._arrays["skills"]
    held = skills.read()
    held["scale"][0, row] = new.scale
    skills.write(held)
    stage.run(VECTORS, row, blend)
    definition.write_slot(state, row, new)
    expected = copy_of(bank)
    expected.state = state
    assert_same_banks([expected], [stage.read()])
    kept = skills.read()[0, row]
    assert kept["key_square"] == square(new.key)
    assert kept["direction_square"] == square(new.direction)


@pytest.mark.parametrize("target", [2, MISS])
def test_promote_slot_and_empty_vectors(program, target):
    bank = grown(5, protection_age=7)
    place, state = 1, bank.state
    x, g = vectors(bank, 5)
    state.pool_keys[place], state.pool_directions[place] = x, g / np.sqrt(square(g))
    state.pool_corrections[place], state.pool_scale[place] = g, 0.25
    state.pool_used[place], state.pool_streak[place] = 1, 3
    stage = Stage(program, bank)
    stage.run(PROMOTE, bank.slots + place, target)
    if target == MISS:
        definition.free_candidate(state, place)
    else:
        state.used[:] = 1
        state.used[target] = 0  # the lowest free slot is the target
        before = state.counters.copy(), stage.read().state.used.copy()
        definition.promote(state, bank.rules, place)
        state.counters[:], state.used[:] = before
        assert state.used[target] == 1
    assert_same_banks([bank], [stage.read()])
    stage.run(EMPTY, 0)
    state = stage.read().state
    assert not any(rows[0].any() for rows in (state.keys, state.directions, state.corrections))


@pytest.mark.parametrize("seed", range(6))
def test_match_slot_and_propose_candidate(program, seed):
    """Scalars alone: near and far keys and directions by turns."""
    bank = grown(seed, min_confirmations=1 + seed % 3, inactivity_age=3, protection_age=0)
    x = bank.state.keys[seed % 4] if seed % 2 else vectors(bank, seed)[0]
    g = bank.state.directions[seed % 4] * F32(0.8) if seed < 4 else vectors(bank, seed)[1]
    x, g = x.copy(), np.where(g == 0, F32(0.1), g)
    pool = bank.state.pool_keys, bank.state.pool_directions
    unit = g / F32(np.sqrt(square(g)))
    near = (
        *(cosines(rows, x, square(x)) for rows in (bank.state.keys, pool[0])),
        *(cosines(rows, unit, square(unit)) for rows in (bank.state.directions, pool[1])),
        np.zeros(0, F32),
    )
    stage = Stage(program, bank, x, g, near)
    matched, *_ = stage.run(MATCH)
    slot = definition.match(bank.state, bank.rules, stage.seen)
    assert matched == (slot >= 0)
    again = Stage(program, stage.read(), x, g, near)
    _, row, blend, decision, target_slot, _ = again.run(PROPOSE)
    assert bank.slots <= row < bank.slots + 3
    expected = definition.propose(bank.state, bank.rules, again.seen)
    assert (decision, target_slot) == expected
    assert (
        blend == (decision == Decision.CANDIDATE)
        or bank.rules.min_confirmations == 1
        or (decision in (Decision.FREE, Decision.EVICT, Decision.NONE))
    )
    for name in ("contacts", "agreement", "observations", "mass", "counters"):
        if decision not in (Decision.FREE, Decision.EVICT):  # promote_slot moves those
            np.testing.assert_array_equal(
                getattr(again.read().state, name), getattr(bank.state, name), err_msg=name
            )


def test_cell_leader_and_cell_update(program):
    """A new cell, the same again, a full one, one in place of the least recently used."""
    bank = Bank(2, 5, aggregate=3, aggregate_cells=2, similarity_threshold=0.5, candidate_pool=1)
    rng, on_device = np.random.default_rng(6), copy_of(bank)
    contexts = np.eye(5, dtype=F32)[[0, 0, 1, 0, 2, 1, 2, 2]]
    what = []
    for x in contexts:
        g = rng.normal(0, 1, 5).astype(F32)
        near = np.zeros(6, F32), cosines(on_device.state.cell_keys, x, square(x))
        stage = Stage(program, on_device, x, g, near)
        what.append(tuple(stage.run(CELLS)[:3]))
        on_device = stage.read()
        emitted = gather(bank.state, bank.rules, x, g, square(x))
        assert_same_banks([bank], [on_device])
        work = [held.read()[0] for held in stage.device_bank._work[:2]]
        np.testing.assert_array_equal(work[0], x if emitted is None else emitted.x)
        np.testing.assert_array_equal(work[1], g if emitted is None else emitted.g)
    assert what[:4] == [(0, 1, 0), (0, 0, 0), (1, 1, 0), (0, 0, 3)]
    assert what[4:] == [(1, 1, 0), (0, 1, 0), (1, 0, 0), (1, 0, 3)]


def test_records_are_the_sizes_that_kernels_expect():
    assert SKILL.dtype.itemsize == 64 and CELL.dtype.itemsize == 16 and HEAD.dtype.itemsize == 28
