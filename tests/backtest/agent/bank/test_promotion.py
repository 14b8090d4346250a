"""Promotions: what a confirmed candidate becomes, which skill gives way, and when none does."""

import numpy as np
import pytest

from backtest.agent.bank import Decision, SlotState
from tests.backtest.agent.bank.plain import candidate, plain, put, same, vector

E0, E1, E2, E3 = np.eye(4, dtype=np.float32)
NONE, FREE, EVICT = Decision.NONE, Decision.FREE, Decision.EVICT
PROTECTED, ACTIVE, INACTIVE = SlotState.PROTECTED, SlotState.ACTIVE, SlotState.INACTIVE
H = vector(4, 3, 0, 0)  # cosine 0.8 with E0
G = vector(0, 0, 0.3, 0.4)  # norm 0.5, unit (0, 0, .6, .8), cosine 0.8 with E3


def test_promotion_commits_to_the_lowest_free_slot():
    bank = candidate(put(plain(min_confirmations=3), 0, E2, E3), 1, E0, E3, streak=2, scale=0.25)
    s = bank.state
    for name in ("utility", "uses", "influence", "retrieved", "contacts", "agreement"):
        getattr(s, name)[1] = 1
    assert bank.update(H, G) == (FREE, 1)
    assert np.array_equal(s.keys[1], vector(2.5, 1.5, 0, 0))
    same(s.directions[1], np.array([0, 0, 0.3, 0.9]) / np.sqrt(0.9))
    same(s.scale[1], 0.375)
    same(s.corrections[1], 0.375 * s.directions[1])
    assert s.used[1] == 1 and s.state[1] == PROTECTED and s.protection[1] == 10
    assert s.observations[1] == 3 and s.mass[1] == 3 and s.age[1] == 0
    for name in ("utility", "uses", "influence", "retrieved", "contacts", "agreement"):
        assert getattr(s, name)[1] == 0, name
    for name in ("keys", "directions", "corrections", "scale", "used", "streak", "clock"):
        assert not np.any(getattr(s, f"pool_{name}")[1]), name
    assert bank.counters["promotions_free"] == 1


def test_one_confirmation_promotes_in_the_same_call():
    bank = plain(slots=1, min_confirmations=1)
    assert bank.update(E0, E3) == (FREE, 0)
    assert bank.state.observations[0] == 1
    assert bank.update(E1, E3) == (NONE, -1)  # protected: dropped
    assert bank.counters["drops"] == 1 and not bank.state.pool_used.any()
    bank.state.state[0], bank.state.protection[0] = INACTIVE, 0
    assert bank.update(E1, E3) == (EVICT, 0)
    assert [bank.counters[k] for k in ("seeds", "drops", "promotions_evict")] == [3, 1, 1]


def ready(**parameters):
    """Three slots, none free, and a candidate one confirmation from promotion."""
    bank = plain(**parameters)
    for slot, key in enumerate((E1, E2, E3)):
        put(bank, slot, key, E3, state=INACTIVE)
    return candidate(bank, 0, E0, E3, streak=2)


# utilities, ages (before the tick adds 1), states, protections; slot
EVICTIONS = [
    ([0, 0, 0], [0, 0, 0], [4, 4, 4], [0, 0, 0], 0),  # equal: the lowest
    ([0.5, -0.5, 0], [0, 0, 0], [4, 4, 4], [0, 0, 0], 1),  # the worst utility
    ([0, 0, 0], [100, 100, 999], [4, 4, 4], [0, 0, 0], 2),  # the oldest
    ([0, -0.09, 0], [999, 0, 0], [4, 4, 4], [0, 0, 0], 0),  # 0.1 against 0.0901
    ([0, -0.11, 0], [999, 0, 0], [4, 4, 4], [0, 0, 0], 1),  # 0.1 against 0.1101
    ([0, -0.51, 0], [999_999, 0, 0], [4, 4, 4], [0, 0, 0], 1),  # age counts 0.5 at most
    ([0, 0, -9], [0, 5001, 5001], [4, 4, 4], [0, 0, 0], 2),  # clamped to -1: 1.5 against 0.5
    ([-0.9, 0, 0], [0, 0, 0], [3, 4, 4], [0, 0, 0], 1),  # ACTIVE is never overwritten
    ([-0.9, 0, 0], [0, 0, 0], [2, 4, 4], [9, 0, 0], 1),  # nor PROTECTED
    ([-0.9, 0, 0], [0, 0, 0], [4, 4, 4], [9, 0, 0], 1),  # nor an inactive one with protection
]


@pytest.mark.parametrize(("utility", "age", "state", "protection", "slot"), EVICTIONS)
def test_evict(utility, age, state, protection, slot):
    bank = ready()
    s = bank.state
    s.utility[:], s.age[:], s.state[:], s.protection[:] = utility, age, state, protection
    kept = s.keys.copy()
    assert bank.update(E0, E3) == (EVICT, slot)
    assert np.array_equal(s.keys[slot], E0) and s.state[slot] == PROTECTED
    assert s.utility[slot] == 0 and s.age[slot] == 0 and s.observations[slot] == 3
    others = np.arange(3) != slot
    assert np.array_equal(s.keys[others], kept[others])
    assert bank.counters["promotions_evict"] == 1


def test_a_candidate_without_a_place_is_dropped_and_freed():
    bank = ready()
    bank.state.state[:] = [ACTIVE, PROTECTED, INACTIVE]
    bank.state.protection[:] = [0, 5, 5]
    before = bank.state.keys.copy(), bank.state.directions.copy(), bank.state.state.copy()
    assert bank.update(E0, E3) == (NONE, -1)
    assert bank.counters["drops"] == 1 and not bank.state.pool_used.any()
    assert np.array_equal(bank.state.keys, before[0])
    assert np.array_equal(bank.state.directions, before[1])
    assert np.array_equal(bank.state.state, before[2])
