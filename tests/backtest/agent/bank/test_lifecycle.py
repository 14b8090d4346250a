"""What each tick and the end of a collection do, state by state."""

import numpy as np
import pytest

from backtest.agent.bank import Decision, SlotState
from tests.backtest.agent.bank.plain import plain, put, vector

FREE, PROTECTED, ACTIVE, INACTIVE = (
    SlotState.FREE,
    SlotState.PROTECTED,
    SlotState.ACTIVE,
    SlotState.INACTIVE,
)
E0, E1, E2, E3 = np.eye(4, dtype=np.float32)

# before: state, age, protection, retrieved; after one tick with inactivity_age 10
TICKS = [
    ((PROTECTED, 5, 3, 0), (PROTECTED, 6, 2, 0)),
    ((PROTECTED, 5, 3, 1), (PROTECTED, 0, 2, 0)),
    ((PROTECTED, 5, 1, 0), (ACTIVE, 0, 0, 0)),  # grown: age starts again
    ((PROTECTED, 50, 1, 0), (ACTIVE, 0, 0, 0)),  # not at once inactive
    ((PROTECTED, 5, 0, 0), (ACTIVE, 0, 0, 0)),
    ((ACTIVE, 8, 0, 0), (ACTIVE, 9, 0, 0)),
    ((ACTIVE, 9, 0, 0), (INACTIVE, 10, 0, 0)),
    ((ACTIVE, 9, 0, 1), (ACTIVE, 0, 0, 0)),  # use keeps it alive
    ((ACTIVE, 30, 0, 1), (ACTIVE, 0, 0, 0)),
    ((INACTIVE, 10, 0, 0), (INACTIVE, 11, 0, 0)),
    ((INACTIVE, 10, 2, 1), (INACTIVE, 0, 1, 0)),  # use alone does not revive
]


@pytest.mark.parametrize(("before", "after"), TICKS)
def test_tick(before, after):
    bank = plain(inactivity_age=10)
    names = ("state", "age", "protection", "retrieved")
    put(bank, 1, E0, E3, **dict(zip(names, before, strict=True)))
    bank.tick()
    assert tuple(int(getattr(bank.state, name)[1]) for name in names) == after


def test_free_slots_do_not_age():
    bank = plain()
    bank.tick()
    assert bank.state.age.tolist() == [0, 0, 0] and bank.state.state.tolist() == [FREE] * 3


def test_a_life_of_protection_2_and_inactivity_3():
    bank = plain(min_confirmations=1, protection_age=2, inactivity_age=3)
    assert bank.update(E0, 0.5 * E3) == (Decision.FREE, 0)
    seen = []
    for _ in range(6):
        bank.tick()
        seen.append((int(bank.state.state[0]), int(bank.state.age[0])))
    assert seen == [
        (PROTECTED, 1),
        (ACTIVE, 0),
        (ACTIVE, 1),
        (ACTIVE, 2),
        (INACTIVE, 3),
        (INACTIVE, 4),
    ]
    # the regime returns: a match revives
    assert bank.update(E0, 0.5 * E3) == (Decision.MATCH, 0)
    assert bank.state.state[0] == PROTECTED and bank.state.protection[0] == 2
    assert bank.state.age[0] == 0 and bank.counters["revivals"] == 1


def test_candidates_are_freed_at_their_ttl():
    bank = plain(candidate_ttl=3, candidate_pool=2)
    assert bank.update(E0, E3) == (Decision.SEED, -1)
    assert bank.update(E1, E3) == (Decision.SEED, -1)
    bank.tick()
    assert bank.state.pool_clock.tolist() == [2, 1]
    bank.tick()
    assert bank.state.pool_used.tolist() == [0, 1]
    assert (bank.state.pool_keys[0] == 0).all() and bank.state.pool_clock[0] == 0
    assert bank.counters["expired"] == 1


def test_clocks_advance_before_matching():
    """The tick of the very observation that would confirm it frees the candidate."""
    bank = plain(candidate_ttl=2)
    bank.update(E0, E3)
    bank.tick()
    assert bank.update(E0, E3) == (Decision.SEED, -1)
    assert bank.counters["expired"] == 1 and bank.state.pool_streak[0] == 1


def test_confirmation_restarts_the_clock():
    bank = plain(candidate_ttl=3, min_confirmations=9)
    bank.update(E0, E3)
    bank.tick()
    assert bank.update(E0, E3) == (Decision.CANDIDATE, -1)
    assert bank.state.pool_clock[0] == 0


def test_the_tick_comes_before_the_match():
    """A slot whose last protection ends in this very tick is matched as ACTIVE."""
    bank = put(plain(), 0, E0, E3, state=PROTECTED, protection=1)
    assert bank.update(E0, E3) == (Decision.MATCH, 0)
    assert bank.state.state[0] == ACTIVE and bank.state.protection[0] == 0


def test_close_collection_revives_what_has_observations():
    bank = plain(slots=4, min_confirmations=3, protection_age=7)
    put(bank, 0, E0, E3, 0.25, state=INACTIVE, observations=3, age=300)
    put(bank, 1, E1, E3, 8.0, state=INACTIVE, observations=2, age=300)
    put(bank, 2, E2, E3, 0.75, state=ACTIVE, age=4)
    bank.close_collection()
    assert bank.state.state.tolist() == [PROTECTED, INACTIVE, ACTIVE, FREE]
    assert bank.state.age.tolist() == [0, 300, 4, 0]
    assert bank.state.protection.tolist() == [7, 0, 0, 0]
    assert bank.state.norm_ref == 0.5  # half of 0.25 + 0.75; slot 1 is not live


def test_close_collection_freezes_the_mean_size_of_valid_contexts():
    bank = plain()
    bank.update(vector(3, 4, 0, 0), E3)
    bank.update(vector(0, 0, 0, 9), E3 * 0)  # |g| = 0: not valid
    bank.update(vector(0, 0, 0, np.nan), E3)  # not finite
    bank.update(vector(0, 0, 0, 7), E3 * 1e-5)  # valid although the test rejects it
    bank.close_collection()
    assert bank.state.h_ref == 6 and bank.state.norm_ref == 0
    bank.update(vector(100, 0, 0, 0), E3)
    assert bank.state.h_ref == 6  # frozen
    bank.clear()
    bank.update(vector(0, 0, 2, 0), E3)
    bank.close_collection()
    assert bank.state.h_ref == 2


def test_the_size_of_the_hidden_state_can_be_told():
    bank = plain()
    bank.update(E0, E3, h_norm=30.0)
    bank.update_rows(E0[None], E3[None], np.array([10], np.float32))
    bank.close_collection()
    assert bank.state.h_ref == 20


def test_clear_empties_all_but_the_context():
    rng = np.random.default_rng(4)
    bank = plain(similarity_threshold="auto", centering="mean")
    bank.fit_context(rng.standard_normal((50, 4)).astype(np.float32), rng)
    fitted = bank.content_hash()
    bank.update(E0, E3)
    bank.retrieve(E1, mark=True)
    assert not bank.blank
    bank.clear()
    assert bank.content_hash() == fitted and not bank.blank
    bank.clear(contexts=True)
    assert bank.blank
    assert bank.content_hash() == plain(similarity_threshold="auto").content_hash()
