"""Cells: where an observation goes, when it comes out, and what the bank then counts."""

import numpy as np

from backtest.agent.bank import Decision
from tests.backtest.agent.bank.plain import plain, vector

E0, E1, E2, E3 = np.eye(4, dtype=np.float32)
NOTHING = (Decision.NONE, -1)


def test_a_cell_emits_its_key_and_mean_at_the_nth_observation():
    bank = plain(aggregate=3, min_confirmations=1)
    assert bank.update(E0, vector(0, 0, 0, 1)) == NOTHING
    assert bank.update(vector(1, 0.5, 0, 0), vector(0, 0, 3, 0)) == NOTHING
    s = bank.state
    assert s.cell_count[0] == 2 and np.array_equal(s.cell_sum[0], vector(0, 0, 3, 1))
    assert np.allclose(s.cell_keys[0], [1, 0.025, 0, 0])  # 0.95*E0 + 0.05*h
    assert bank.counters["ticks"] == 0 and bank.counters["swallowed"] == 2
    assert bank.update(E0, vector(0, 0, 0, 2)) == (Decision.FREE, 0)
    assert np.allclose(s.keys[0], [1, 0.02375, 0, 0])
    assert np.allclose(s.directions[0], vector(0, 0, 1, 1) / np.sqrt(2))
    assert bank.counters["ticks"] == 1
    # sum and count restart, the key stays
    assert s.cell_count[0] == 0 and not s.cell_sum[0].any() and s.cell_used[0] == 1
    assert np.allclose(s.cell_keys[0], [1, 0.02375, 0, 0])


def test_only_emitted_observations_age_the_bank():
    bank = plain(aggregate=4, min_confirmations=1, protection_age=5)
    for _ in range(4):
        bank.update(E0, E3)
    for _ in range(3):
        bank.update(E0, E3)
    assert bank.state.protection[0] == 5 and bank.state.age[0] == 0
    bank.update(E0, E3)
    assert bank.state.protection[0] == 4


def test_the_most_similar_cell_gets_it_and_ties_go_to_the_lowest():
    bank = plain(aggregate=9, similarity_threshold=0.6)
    bank.update(E0, E3)
    bank.update(E1, E3)
    bank.update(vector(3, 4, 0, 0), E3)  # 0.6 and 0.8
    assert bank.state.cell_count[:3].tolist() == [1, 2, 0]
    bank.clear()
    bank.update(E0, E3)
    bank.update(E1, E3)
    bank.update(vector(1, 1, 0, 0), E3)
    assert bank.state.cell_count[:3].tolist() == [2, 1, 0]


def test_a_new_context_takes_the_lowest_free_cell_then_the_least_recently_used():
    bank = plain(aggregate=9, aggregate_cells=3)
    for h in (E0, E1, E2, E0):
        bank.update(h, E3)
    bank.update(E3, 2 * E3)  # E1 was used longest ago
    s = bank.state
    assert np.array_equal(s.cell_keys[1], E3)
    assert s.cell_count.tolist() == [2, 1, 1] and np.array_equal(s.cell_sum[1], 2 * E3)
    assert s.cell_last.tolist() == [4, 5, 3] and bank.counters["recycled"] == 1


def test_the_direction_is_no_part_of_the_choice():
    bank = plain(aggregate=2, min_confirmations=1)
    bank.update(E0, E3)
    assert bank.update(E0, -E3) == NOTHING  # emitted, but the mean is zero
    assert bank.counters["ticks"] == 1 and bank.counters["small"] == 1
    assert not bank.state.pool_used.any()


def test_a_zero_residual_is_an_observation_of_its_cell():
    bank = plain(aggregate=2, min_confirmations=1)
    bank.update(E0, E3)
    assert bank.update(E0, 0 * E3) == (Decision.FREE, 0)
    assert bank.state.scale[0] == 0.5


def test_what_is_not_finite_never_enters_a_cell():
    bank = plain(aggregate=2)
    bank.update(vector(np.inf, 0, 0, 0), E3)
    bank.update(E0, vector(0, 0, np.nan, 0))
    assert not bank.state.cell_used.any() and bank.state.cell_clock == 0
    assert bank.counters["non_finite"] == 2


def test_a_mean_of_noise_finds_the_direction():
    """Single residuals are sign noise on one axis; means of 25 agree."""
    rng = np.random.default_rng(5)
    true = vector(0, 0, 0.6, 0.8)
    g = rng.choice([-1, 1], (1000, 1), p=[0.2, 0.8]) * true + 0.1 * rng.standard_normal((1000, 4))
    h = np.tile(E0, (1000, 1))
    found = {}
    for aggregate in (1, 25):
        bank = plain(aggregate=aggregate, beta_direction=0.1, beta_key=0.1)
        bank.update_rows(h, g.astype(np.float32))
        used = bank.state.used != 0
        found[aggregate] = (bank.state.directions[used] @ true).round(1).tolist()
    assert len(found[1]) == 2 and np.prod(found[1]) < -0.9  # two opposite skills
    assert found[25] == [1.0]
