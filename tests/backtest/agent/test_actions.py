import numpy as np
import pytest

from backtest.agent.actions import FIXED_ACTION, SPANS, greedy, learned


def test_branches_tile_the_thirteen_actions():
    assert SPANS == ((0, 4), (4, 7), (7, 10), (10, 13))


def test_learned_branches_come_in_the_order_of_the_action():
    assert learned(("magnitude", "direction")) == (0, 1)
    assert learned(("urgency", "direction")) == (0, 3)


def test_greedy_takes_the_lowest_index_of_equals_and_fixes_what_is_not_learned():
    q = np.zeros((2, 13), np.float32)
    q[0, [1, 3]] = 2  # hold and flat tie
    q[1, [6, 9, 12]] = 1
    assert greedy(q, ("direction",)).tolist() == [[1, 2, 0, 2], [0, 2, 0, 2]]
    everything = ("direction", "magnitude", "order", "urgency")
    assert greedy(q, everything).tolist() == [[1, 0, 0, 0], [0, 2, 2, 2]]
    assert FIXED_ACTION[1:] == (2, 0, 2)  # full size, market order, whole change at once


def test_greedy_refuses_other_shapes():
    with pytest.raises(ValueError, match="13"):
        greedy(np.zeros((2, 12), np.float32), ("direction",))
