"""Which slot a query finds, and what it adds; every number by hand."""

import numpy as np
import pytest

from backtest.agent.bank import ABSTAIN, MISS, SlotState
from backtest.agent.bank.retrieval import apply_rows, retrieve_rows
from tests.backtest.agent.bank.plain import plain, put, vector

E0, E1, E2, E3 = np.eye(4, dtype=np.float32)
MIX = vector(4, 3, 0, 0)  # cosine 0.8 with E0, 0.6 with E1


@pytest.fixture
def two():
    """Slot 0 at E0, slot 1 at E1, directions E3 and E2."""
    return put(put(plain(), 0, E0, E3), 1, E1, E2)


def found(bank, h, **arguments):
    return retrieve_rows(bank.snapshot(**arguments), np.atleast_2d(h)).tolist()


def test_the_best_eligible_slot_above_the_threshold(two):
    assert found(two, np.stack([E0, E1, MIX, E2, -E0])) == [0, 1, 0, MISS, MISS]


def test_the_threshold_itself_is_a_hit():
    bank = put(plain(similarity_threshold=1.0), 0, E0, E3)
    assert found(bank, np.stack([E0, 2 * E0, MIX])) == [0, 0, MISS]


@pytest.mark.parametrize(
    ("state", "slot"),
    [
        (SlotState.FREE, MISS),
        (SlotState.CANDIDATE, MISS),
        (SlotState.PROTECTED, 0),
        (SlotState.ACTIVE, 0),
        (SlotState.INACTIVE, MISS),
    ],
)
def test_only_protected_and_active_slots_are_eligible(two, state, slot):
    two.state.state[0] = state
    assert found(two, E0) == [slot]


def test_an_unused_slot_is_not_eligible(two):
    two.state.used[0] = 0
    assert found(two, E0) == [MISS]


@pytest.mark.parametrize("name", ["keys", "directions", "corrections", "scale"])
def test_a_slot_that_is_not_finite_is_not_eligible(two, name):
    getattr(two.state, name)[0] = np.nan
    assert found(two, np.stack([E0, E1])) == [MISS, 1]


@pytest.mark.parametrize("h", [vector(0, 0, 0, 0), vector(9e-7, 0, 0, 0), vector(np.nan, 0, 0, 1)])
def test_a_query_without_direction_finds_nothing(two, h):
    assert found(two, h) == [MISS]


def test_a_key_without_direction_is_never_found(two):
    two.state.keys[0] *= 0
    assert found(two, E0) == [MISS]


def test_low_utility_is_ineligible_unless_utility_is_ignored(two):
    two.state.utility[0] = -0.2  # min_utility itself is eligible
    assert found(two, E0) == [0]
    two.state.utility[0] = np.nextafter(np.float32(-0.2), np.float32(-1))
    assert found(two, E0) == [MISS]
    blind = put(plain(utility_aware=False), 0, E0, E3, utility=-0.9)
    assert found(blind, E0) == [0]


def test_utility_ranks_but_never_replaces_similarity():
    bank = put(put(plain(similarity_threshold=0.5), 0, E0, E3), 1, E1, E3, utility=1.0)
    # MIX: 0.8 against 0.6 + 0.1*1
    assert found(bank, MIX) == [0]
    bank = put(put(plain(similarity_threshold=0.5, utility_weight=0.3), 0, E0, E3), 1, E1, E3)
    bank.state.utility[1] = 7.0  # clamped to 1: 0.6 + 0.3 = 0.9 > 0.8
    assert found(bank, MIX) == [1]
    assert bank.snapshot().bonus[1] == np.float32(0.3)
    assert found(bank, vector(1, -1, 0, 0)) == [0]  # slot 1 is out of context, however it paid


def test_the_exploration_term_exists_only_on_demand():
    bank = put(put(plain(exploration_c=0.05), 0, E0, E3), 1, E0, E3)
    bank.state.uses[:2] = [99, 0]
    assert found(bank, E0) == [0]  # ties go to the lowest slot
    assert found(bank, E0, explore=True) == [1]
    # 0.05*sqrt(ln(100)/100) = 0.0107298, 0.05*sqrt(ln(100)/1) = 0.1072983
    bonus = bank.snapshot(explore=True).bonus
    assert np.allclose(bonus[:2], [0.0107298, 0.1072983], rtol=1e-5)
    assert (bank.snapshot().bonus == 0).all()


def test_two_close_scores_with_opposed_directions_abstain():
    near = vector(1, 0.1, 0, 0)  # cosine 0.99504 with E0
    assert found(put(put(plain(), 0, E0, E3), 1, near, -E3), E0) == [ABSTAIN]
    assert found(put(put(plain(), 0, E0, E3), 1, near, E3), E0) == [0]
    assert found(put(put(plain(), 0, E0, E3), 1, near, E2), E0) == [0]  # cosine 0: no quarrel
    far = vector(1, 0.3, 0, 0)  # cosine 0.957826: more than 0.02 below
    assert found(put(put(plain(), 0, E0, E3), 1, far, -E3), E0) == [0]
    # a rival that is not eligible does not count
    bank = put(put(plain(), 0, E0, E3), 1, near, -E3, state=SlotState.INACTIVE)
    assert found(bank, E0) == [0]


def test_only_the_two_best_can_quarrel():
    bank = put(put(put(plain(), 0, E0, E3), 1, E0, E3), 2, vector(1, 0.1, 0, 0), -E3)
    assert found(bank, E0) == [0]


def test_solo_snapshots_hold_one_slot(two):
    assert found(two, np.stack([E0, E1]), only=1) == [MISS, 1]


def test_centring_shifts_the_query(two):
    two.state.center[:] = [10, 10, 0, 0]
    assert found(two, vector(11, 10, 0, 0)) == [0]
    assert found(two, E0) == [MISS]


def test_apply_is_a_select():
    bank = put(plain(alpha=2.0), 0, E0, E3, scale=0.5)
    h = np.stack([E0, vector(-0.0, 1, 0, 0)])
    snapshot = bank.snapshot()
    slots = retrieve_rows(snapshot, h)
    assert slots.dtype == np.int32
    moved = apply_rows(snapshot, h, slots)
    assert np.array_equal(moved[0], vector(1, 0, 0, 1))  # 2*0.5*E3
    assert moved[1].tobytes() == h[1].tobytes()  # the sign of zero survives


def test_raw_and_relative_strength():
    bank = put(put(plain(), 0, E0, E3, scale=0.5), 1, E1, E2, scale=0.125)
    assert np.array_equal(bank.snapshot(alpha=3).shift[0], 1.5 * E3)
    bank = put(put(put(plain(alpha_unit="relative"), 0, E0, E3, 0.5), 1, E1, E2, 0.125), 2, E2, E1)
    bank.state.scale[2] = 4.0
    assert (bank.snapshot().shift == 0).all()  # not closed yet
    assert bank.retrieve(E0)[0] == 0  # still found
    bank.state.h_mean[...] = 8.0
    bank.close_collection()
    assert bank.state.norm_ref == 0.5 and bank.state.h_ref == 8
    # alpha*min(scale/0.5, 2)*8: 4, 1, and 8 capped to 2
    shift = bank.snapshot(alpha=0.5).shift
    assert np.array_equal(shift, np.stack([4 * E3, 1 * E2, 8 * E1]))


def test_full_representation_applies_the_correction_vector():
    bank = put(plain(representation="full", alpha_unit="raw"), 0, E0, E3)
    bank.state.corrections[0] = [0, 0, 3, 4]
    assert np.array_equal(bank.snapshot(alpha=2).shift[0], vector(0, 0, 6, 8))
    bank = put(plain(representation="full", alpha_unit="relative"), 0, E0, E3)
    bank.state.corrections[0] = [0, 0, 3, 4]
    bank.state.norm_ref[...], bank.state.h_ref[...] = 10, 30
    # |c|/norm_ref = 0.5; 1*0.5*30 along c/|c|
    assert np.allclose(bank.snapshot().shift[0], [0, 0, 9, 12])


def test_a_working_retrieval_counts_and_a_look_does_not(two):
    before = two.content_hash()
    assert two.observe(E0) == 0
    slot, correction = two.retrieve(E0)
    assert slot == 0 and np.array_equal(correction, 0.5 * E3)
    slot, correction = two.retrieve(E3, explore=True)
    assert slot == MISS and np.array_equal(correction, np.zeros(4, np.float32))
    assert two.content_hash() == before
    for h in (E0, MIX, E3):
        two.retrieve(h, mark=True)
    assert two.state.uses.tolist() == [2, 0, 0]
    assert two.state.retrieved.tolist() == [1, 0, 0]
    assert {k: two.counters[k] for k in ("hits", "misses", "abstentions")} == {
        "hits": 2,
        "misses": 1,
        "abstentions": 0,
    }
    put(two, 2, E0, -E3)
    assert two.retrieve(E0, mark=True)[0] == ABSTAIN
    assert two.counters["abstentions"] == 1 and two.state.uses[0] == 2


def test_uses_of_a_rollout_are_entered_after_it(two):
    two.add_uses(np.array([5, 0, 7]), np.array([True, False, True]), misses=3, abstentions=2)
    assert two.state.uses.tolist() == [5, 0, 7]
    assert two.state.retrieved.tolist() == [1, 0, 1]
    assert [two.counters[k] for k in ("hits", "misses", "abstentions")] == [12, 3, 2]


def test_batched_retrieval_equals_one_by_one():
    rng = np.random.default_rng(3)
    bank = plain(slots=9, dim=70, similarity_threshold=0.1)
    for slot in range(9):
        put(bank, slot, rng.standard_normal(70), rng.standard_normal(70), state=2 + slot % 3)
        bank.state.utility[slot] = rng.uniform(-0.4, 1)
    h = rng.standard_normal((200, 70)).astype(np.float32)
    rows = retrieve_rows(bank.snapshot(), h)
    assert rows.tolist() == [bank.retrieve(x)[0] for x in h]
    assert {MISS, ABSTAIN} < set(rows.tolist()) and (rows >= 0).any()
