"""Every decision of the update, each from a bank written by hand and one observation."""

import numpy as np
import pytest

from backtest.agent.bank import Bank, Decision, SlotState
from tests.backtest.agent.bank.plain import candidate, plain, put, same, vector

E0, E1, E2, E3 = np.eye(4, dtype=np.float32)
NONE, MATCH, SEED, CANDIDATE, RESET, FREE, EVICT = Decision
PROTECTED, ACTIVE, INACTIVE = SlotState.PROTECTED, SlotState.ACTIVE, SlotState.INACTIVE
H = vector(4, 3, 0, 0)  # cosine 0.8 with E0
G = vector(0, 0, 0.3, 0.4)  # norm 0.5, unit (0, 0, .6, .8), cosine 0.8 with E3


# NONE


def test_a_zero_residual_ticks_and_teaches_nothing():
    bank = put(plain(), 0, E0, E3)
    assert bank.update(E0, 0 * G) == (NONE, -1)
    assert bank.state.age[0] == 1 and bank.counters["small"] == 1 and bank.state.norm_ema == 0


def test_a_residual_far_below_the_average_teaches_nothing_but_moves_the_average():
    bank = plain()
    assert bank.update(E0, E3)[0] == SEED
    assert bank.state.norm_ema == 1  # starts at the first valid |g|
    assert bank.update(E0, 0.0009 * E3) == (NONE, -1)
    same(bank.state.norm_ema, 0.99 + 0.01 * 0.0009)
    assert bank.update(E0, 0.001 * E3)[0] == CANDIDATE  # not below 1e-3 of 0.990009
    assert bank.counters["small"] == 1 and bank.counters["ticks"] == 3


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("where", ["h", "g"])
def test_what_is_not_finite_does_not_even_tick(bad, where):
    bank = put(plain(), 0, E0, E3, protection=2, state=PROTECTED)
    before = bank.state_dict()
    h, g = E0.copy(), E3.copy()
    (h if where == "h" else g)[2] = bad
    assert bank.update(h, g) == (NONE, -1)
    assert bank.counters["non_finite"] == 1
    for name, array in bank.state_dict().items():
        if name != "counters":
            assert np.array_equal(array, before[name]), name


# MATCH


def test_match_moves_every_average():
    bank = put(plain(), 1, E0, E3, scale=0.25, state=ACTIVE, age=9, mass=2.0)
    assert bank.update(H, G) == (MATCH, 1)
    s = bank.state
    assert np.array_equal(s.keys[1], vector(2.5, 1.5, 0, 0))  # half of E0 + H
    # (0, 0, .3, .9) has the norm sqrt(.9)
    direction = np.array([0, 0, 0.3, 0.9]) / np.sqrt(0.9)
    same(s.directions[1], direction)
    same(np.linalg.norm(s.directions[1]), 1)
    same(s.scale[1], 0.375)
    same(s.corrections[1], 0.375 * direction)
    assert s.observations[1] == 6 and s.age[1] == 0 and s.state[1] == ACTIVE
    same(s.mass[1], 1.95)
    assert s.contacts[1] == 1
    same(s.agreement[1], 0.8)
    assert bank.counters["matches"] == 1 and not s.pool_used.any()


def test_match_in_the_full_representation_averages_the_residual():
    bank = put(plain(representation="full"), 0, E0, E3, scale=0.25)
    assert bank.update(H, G) == (MATCH, 0)
    same(bank.state.corrections[0], [0, 0, 0.15, 0.325])  # half of 0.25*E3 + G
    same(bank.state.scale[0], 0.375)
    same(bank.state.directions[0], np.array([0, 0, 0.3, 0.9]) / np.sqrt(0.9))


def test_scale_and_full_corrections_are_clipped():
    for representation in ("full", "direction_magnitude"):
        bank = put(plain(representation=representation, max_correction=0.75), 0, E0, E3, scale=0.5)
        assert bank.update(E0, 4 * E3) == (MATCH, 0)
        assert np.array_equal(bank.state.corrections[0], 0.75 * E3)
        assert bank.state.scale[0] == 0.75


def test_the_best_key_among_those_that_pass_both_thresholds():
    bank = put(put(put(plain(), 0, E0, E3), 1, H, -E3), 2, E1 + E0, E3)
    # cosines of H: 0.8, 1, 0.98995; slot 1 disagrees in direction
    assert bank.update(H, E3) == (MATCH, 2)
    assert np.array_equal(bank.state.keys[1], H)  # never blended
    assert bank.state.contacts.tolist() == [0, 1, 0] and bank.state.agreement[1] == -1


def test_equal_keys_match_the_lowest_slot():
    bank = put(put(plain(), 1, E0, E3), 2, E0, E3)
    assert bank.update(E0, E3) == (MATCH, 1)


def test_both_thresholds_are_inclusive():
    bank = put(plain(similarity_threshold=1.0, direction_threshold=1.0), 0, E0, E3)
    assert bank.update(E0, E3) == (MATCH, 0)


def test_inactive_slots_are_matched_and_revived():
    bank = put(plain(protection_age=4), 0, E0, E3, state=INACTIVE, age=500)
    assert bank.update(E0, E3) == (MATCH, 0)
    assert bank.state.state[0] == PROTECTED and bank.state.protection[0] == 4


def test_other_states_stay_as_they_are():
    bank = put(plain(protection_age=4), 0, E0, E3, state=PROTECTED, protection=3)
    bank.update(E0, E3)
    assert bank.state.state[0] == PROTECTED and bank.state.protection[0] == 2  # only the tick


# SEED


def test_seed_fills_the_lowest_free_place():
    bank = candidate(plain(max_correction=0.4), 0, E1, E3)
    assert bank.update(H, G) == (SEED, -1)
    s = bank.state
    assert np.array_equal(s.pool_keys[1], H)
    same(s.pool_directions[1], [0, 0, 0.6, 0.8])
    same(s.pool_scale[1], 0.4)  # clipped
    same(s.pool_corrections[1], [0, 0, 0.24, 0.32])
    assert s.pool_streak[1] == 1 and s.pool_clock[1] == 0
    assert not s.used.any()


def test_seed_in_the_full_representation_clips_the_residual():
    bank = plain(representation="full", max_correction=0.25)
    bank.update(E0, G)
    same(bank.state.pool_corrections[0], [0, 0, 0.15, 0.2])


def test_a_foreign_direction_in_a_known_context_seeds_and_touches_no_slot():
    bank = put(plain(), 0, E0, E3)
    before = bank.state.keys.copy(), bank.state.directions.copy()
    assert bank.update(E0, -E3) == (SEED, -1)
    assert np.array_equal(bank.state.keys, before[0])
    assert np.array_equal(bank.state.directions, before[1])


# CANDIDATE


def test_confirmation_moves_the_averages_of_a_candidate():
    bank = candidate(plain(), 2, E0, E3, scale=0.25)
    bank.state.pool_clock[2] = 7
    assert bank.update(H, G) == (CANDIDATE, -1)
    s = bank.state
    assert np.array_equal(s.pool_keys[2], vector(2.5, 1.5, 0, 0))
    same(s.pool_directions[2], np.array([0, 0, 0.3, 0.9]) / np.sqrt(0.9))
    same(s.pool_scale[2], 0.375)
    assert s.pool_streak[2] == 2 and s.pool_clock[2] == 0
    assert bank.counters["confirmations"] == 1


def test_the_candidate_with_the_best_key_is_confirmed():
    bank = candidate(candidate(plain(), 0, E0, E3), 1, E0 + E1, E3)
    bank.update(H, E3)
    assert bank.state.pool_streak.tolist() == [1, 2, 0, 0]


# RESET


def test_a_disagreeing_candidate_in_context_starts_again():
    bank = candidate(candidate(plain(), 0, E0, E3, streak=2), 1, E2, E3, streak=2)
    assert bank.update(H, -G) == (RESET, -1)
    s = bank.state
    assert np.array_equal(s.pool_keys[0], H)
    same(s.pool_directions[0], [0, 0, -0.6, -0.8])
    assert s.pool_streak.tolist() == [1, 2, 0, 0]
    assert bank.counters["resets"] == 1


def test_an_agreeing_candidate_further_away_is_confirmed_before_a_closer_one_is_reset():
    bank = candidate(candidate(plain(), 0, H, -E3), 1, E0, E3)
    assert bank.update(H, E3) == (CANDIDATE, -1)
    assert bank.state.pool_streak.tolist() == [1, 2, 0, 0]


def test_the_closest_disagreeing_candidate_is_the_one_to_restart():
    bank = candidate(candidate(plain(), 0, E0, -E3, streak=2), 1, H, -E3, streak=2)
    assert bank.update(H, E3) == (RESET, -1)
    assert bank.state.pool_streak.tolist() == [2, 1, 0, 0]


def test_a_full_pool_loses_its_shortest_streak():
    bank = plain(candidate_pool=3)
    for place, (key, streak) in enumerate([(E1, 2), (E2, 1), (E3, 1)]):
        candidate(bank, place, key, E3, streak)
    assert bank.update(E0, E3) == (RESET, -1)
    assert bank.state.pool_streak.tolist() == [2, 1, 1]
    assert np.array_equal(bank.state.pool_keys[1], E0)  # the lowest of equals


def test_confirmations_are_consecutive_in_the_candidates_own_context():
    """Other contexts in between do not break a streak; a contradiction in context does."""
    bank = plain(min_confirmations=3)
    assert [bank.update(h, g)[0] for h, g in [(E0, E3), (E1, E3), (E0, E3)]] == [
        SEED,
        SEED,
        CANDIDATE,
    ]
    assert bank.update(E0, -E3)[0] == RESET
    assert [bank.update(E0, -E3) for _ in range(2)] == [(CANDIDATE, -1), (FREE, 0)]


# Direction EMA


def test_a_direction_turns_and_nothing_else_does():
    bank = put(plain(), 0, E0, E3, scale=0.25)
    before = bank.state_dict()
    assert bank.update_direction(0, G)
    direction = np.array([0, 0, 0.3, 0.9]) / np.sqrt(0.9)
    same(bank.state.directions[0], direction)
    same(bank.state.corrections[0], 0.25 * direction)
    for name, array in bank.state_dict().items():
        if name not in ("directions", "corrections", "counters"):
            assert np.array_equal(array, before[name]), name


def test_a_full_correction_follows_the_residual_online():
    bank = put(plain(representation="full"), 0, E0, E3, scale=0.25)
    assert bank.update_direction(0, G)
    same(bank.state.corrections[0], [0, 0, 0.15, 0.325])


@pytest.mark.parametrize("state", [SlotState.FREE, SlotState.CANDIDATE, INACTIVE])
def test_only_live_directions_turn(state):
    bank = put(plain(), 0, E0, E3, state=state)
    before = bank.content_hash()
    assert not bank.update_direction(0, G)
    assert bank.content_hash() == before


def test_directions_that_cancel_or_are_not_finite_leave_the_old_one():
    bank = put(plain(), 0, E0, E3)
    assert bank.update_direction(0, -E3)
    assert np.array_equal(bank.state.directions[0], E3)
    assert not bank.update_direction(0, 0 * E3)
    assert not bank.update_direction(0, np.nan * E3)
    assert bank.counters["non_finite"] == 1


# Shapes


@pytest.mark.parametrize(
    ("h", "g", "text"),
    [
        (np.zeros(3, np.float32), E3, r"h has shape \[3\], not \[4\]"),
        (E0, np.zeros((1, 4), np.float32), r"g has shape \[1, 4\], not \[4\]"),
    ],
)
def test_other_shapes_are_refused(h, g, text):
    bank = plain()
    before = bank.content_hash()
    with pytest.raises(ValueError, match=text):
        bank.update(h, g)
    with pytest.raises(ValueError, match=f"{text[0]} has shape"):
        bank.update_rows(h[None], g[None])
    assert bank.content_hash() == before


def test_other_numbers_are_converted():
    one, two = plain(), plain()
    one.update(H.astype(np.float64), G.tolist())
    two.update(H, G)
    assert one.content_hash() == two.content_hash()
    assert one.update(np.full(4, 1e300), G) == (NONE, -1) and one.counters["non_finite"] == 1


def test_keys_and_corrections_may_differ_in_width():
    bank = Bank(2, 3, key_dim=5, similarity_threshold=0.7, aggregate=1, min_confirmations=1)
    key = np.ones(5, np.float32)
    assert bank.update(key, vector(0, 1, 0)) == (FREE, 0)
    slot, correction = bank.retrieve(key)
    assert slot == 0 and correction.shape == (3,)
