"""The literal design is what docs/d2skill.md says it is, and the table of differences holds."""

import numpy as np
import pytest

from tests import literal_table
from tests.literal_bank import ACTIVE, CANDIDATE, INACTIVE, PROTECTED, LiteralBank

E0, E1, E2, E3 = np.eye(4)


def test_the_candidate_lives_in_a_slot_and_any_misfit_starts_it_again():
    bank = LiteralBank(2, 4)
    assert [bank.update(h, g) for h, g in [(E0, E3), (E0, E3), (E1, E3), (E0, E3)]] == [
        "SEED",
        "CANDIDATE",
        "RESET",
        "RESET",
    ]
    assert bank.state.tolist() == [CANDIDATE, 0]
    assert [bank.update(E0, E3) for _ in range(3)] == ["CANDIDATE", "PROMOTE", "MATCH"]
    assert bank.state[0] == PROTECTED


def test_a_seed_destroys_the_skill_it_evicts_at_once():
    bank = LiteralBank(1, 4, min_confirmations=3)
    bank.keys[0], bank.directions[0], bank.scale[0] = E0, E3, 1
    bank.state[0] = ACTIVE
    assert bank.update(E1, E3) == "NONE"
    bank.state[0] = INACTIVE
    assert bank.update(E0, E3) == "SEED"  # an inactive skill is not matched, though it fits
    assert bank.state[0] == CANDIDATE


def test_age_outgrows_utility_in_an_eviction():
    bank = LiteralBank(2, 4)
    bank.state[:] = INACTIVE
    bank.utility[:], bank.age[:] = [1, -1], [30_000, 0]
    assert bank.room() == 0


def test_only_the_retrieved_slot_is_tested():
    bank = LiteralBank(3, 4)
    bank.keys[:2], bank.directions[:2], bank.scale[:2] = [E0, E0 + 0.1 * E1], [-E3, E3], 1
    bank.state[:2] = ACTIVE
    assert bank.update(E0, E3) == "SEED"  # slot 1 fits and agrees, slot 0 is closer


def test_the_middle_of_opposed_directions_is_short():
    bank = LiteralBank(1, 4, min_confirmations=1, direction_threshold=-1)
    bank.update(E0, E3)
    bank.update(E0, E2)
    assert np.allclose(bank.directions[0], [0, 0, 0.1, 0.9])
    assert np.isclose(np.linalg.norm(bank.retrieve(E0)[1]), 0.3 * np.sqrt(0.82))


def figures(rows):
    return [(float(row[3].rstrip("%")), float(row[4].rstrip("%"))) for row in rows]


def test_judgement_differs_as_documented():
    share, blame, influence = figures(literal_table.judgement_rows())
    assert share == (0.2, 0.8) and blame == (0, -0.5) and influence == (0, 1)


def test_sleeping_skills_differ_as_documented():
    skills, right, foreign = figures(literal_table.regime_rows(0.5, 500))
    assert skills == (1, 2) and right == (50, 100) and foreign == (0, 0)


def test_raw_strength_is_lost_beside_the_hidden_state():
    length, size = figures(literal_table.strength_rows())
    assert length[0] < 0.9 and length[1] == 1
    assert size[0] < 1e-3 < 0.5 < size[1]


@pytest.mark.slow
def test_the_whole_table():
    rows = literal_table.table()
    ours = {row[0]: float(row[4].rstrip("%")) for row in rows if row[1] == "right correction"}
    assert len(ours) == 8 and min(ours.values()) > 95
    noisy = [row for row in rows if "signs wrong" in row[0]]
    assert figures(noisy)[0] == (17, 2)
    single = [figures([row])[0] for row in rows if row[0].startswith("one skill")]
    assert single[0][1] < 0.9 < 0.98 < min(ours for _, ours in single[1:])
