"""Two hidden regimes that need opposite corrections: two skills, found again, silent elsewhere."""

import numpy as np
import pytest

from backtest.agent.bank import Bank
from tests.regimes import DIM, PARAMETERS, contexts, correct, corrections, regimes


@pytest.mark.parametrize("length", [40, 500])
@pytest.mark.parametrize("share", [0.5, 0.8, 0.95])
def test_recovery(share, length):
    check(share, length)


def test_recovery_in_the_full_representation():
    check(0.8, 40, representation="full")


def check(share, length, **parameters):
    rng = np.random.default_rng(14)
    bank = Bank(21, DIM, **PARAMETERS, **parameters)
    which, h, g = regimes(rng, share, length)
    bank.update_rows(h, g)
    bank.close_collection()
    assert bank.state.used.sum() == 2
    found = correct(corrections(bank), rng)
    assert found.right > 0.95 and found.foreign == 0
    assert found.cosine > 0.9
    assert np.isclose((which == 0).mean(), share)


def test_a_third_regime_moves_nothing_bit_for_bit():
    rng = np.random.default_rng(15)
    bank = Bank(21, DIM, **PARAMETERS)
    _, h, g = regimes(rng, 0.5, 40)
    bank.update_rows(h, g)
    bank.close_collection()
    for x in contexts(rng, 2, 50):
        slot, correction = bank.retrieve(x)
        assert slot == -1 and not correction.any()
