import numpy as np
import pytest

from backtest.errors import DataError
from backtest.features.prices import checked, differences, forward_adjusted

OPEN = np.array([10.0, 11.0, 21.0, 22.0])
CLOSE = np.array([11.0, 12.0, 23.0, 20.0])
ROLL = np.array([True, False, True, False])  # the flag of the first bar has no gap


def test_the_gap_of_a_roll_is_in_no_difference():
    # bar 2 opens at 21 after a close of 12: gap 9, its own move is 23 - 21
    assert differences(OPEN, CLOSE, ROLL).tolist() == [0, 1, 2, -3]


def test_prices_are_adjusted_forward():
    prices = forward_adjusted(OPEN, CLOSE + 1, OPEN - 1, CLOSE, ROLL)
    assert prices.close.tolist() == [11, 12, 14, 11]
    assert prices.open.tolist() == [10, 11, 12, 13]
    assert prices.high.tolist() == [12, 13, 15, 12]
    assert prices.low.tolist() == [9, 10, 11, 12]


def test_values_that_are_not_finite_are_refused_with_their_row():
    with pytest.raises(DataError, match=r"high = nan at row 2 \(1 such rows\).*not_finite"):
        checked("high", [1.0, 2.0, np.nan], 3)
    with pytest.raises(DataError, match="column low has shape"):
        checked("low", [1.0], 3)
