"""Banks as device arrays and back: nothing is lost, slots and candidates share rows."""

import numpy as np

from backtest.agent.bank import Bank
from backtest.agent.bank.ordered import square
from backtest.agent.bank.records import UTILITY_RULES
from backtest.agent.bank.rough import rough_bank, rough_parameters
from backtest.agent_sections import SkillBank
from opencl.bank_state import pack, rules_record, unpack
from tests.opencl.bank_scenes import assert_same_banks


def test_a_round_trip_loses_nothing():
    for changes in ({"aggregate": 1}, {"aggregate": 3, "aggregate_cells": 4}):
        parameters = rough_parameters(3) | {"candidate_pool": 2} | changes
        banks = [rough_bank(5, 7, seed, key_dim=4, rows=60, **parameters) for seed in (1, 2)]
        for bank in banks:
            bank.state.quantiles[:] = 0.25  # not on the device
            bank.state.uses[0] = 2**40
        arrays = pack(banks)
        assert arrays["skills"].shape == (2, 5 + 2) and arrays["keys"].shape == (2, 7, 4)
        assert_same_banks(banks, unpack(arrays, banks))


def test_squares_stand_beside_their_vectors():
    bank = rough_bank(3, 70, 1, rows=60, aggregate=3, candidate_pool=2)
    arrays = pack([bank])
    np.testing.assert_array_equal(arrays["skills"]["key_square"], square(arrays["keys"]))
    np.testing.assert_array_equal(
        arrays["skills"]["direction_square"], square(arrays["directions"])
    )
    np.testing.assert_array_equal(arrays["cells"]["key_square"], square(arrays["cell_keys"]))
    assert arrays["skills"]["key_square"].any() and arrays["cells"]["key_square"].any()


def test_rules_are_those_of_the_bank():
    bank = Bank(3, 70, key_dim=5, beta_key=0.25, aggregate=1, influence_rule="endpoint")
    record = rules_record(bank)
    assert (record["slots"], record["pool"], record["cells"]) == (3, 4, 0)
    assert (record["key_dim"], record["dim"], record["trapezoid"]) == (5, 70, 0)
    assert record["beta_key"] == 0.25 and record["keep_key"] == 0.75
    assert UTILITY_RULES[record["utility_rule"]] == bank.section.utility_rule


def test_every_utility_rule_has_a_code():
    allowed = SkillBank.model_fields["utility_rule"].annotation.__args__
    assert set(UTILITY_RULES) == set(allowed)
