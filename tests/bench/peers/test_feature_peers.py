"""Features equal what pandas and TA-Lib compute, and a difference is not timed."""

from dataclasses import replace

import pytest

from tests.bench.features import random_bars
from tests.bench.peers import feature_peers

BARS = random_bars(3000)
PAIRS = feature_peers.pairs(BARS, BARS)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.name}, {pair.peer}")
def test_both_are_equal_and_a_difference_is_seen(pair):
    pair.check()
    off = replace(pair, theirs=lambda: tuple(column * 1.001 for column in pair.theirs()))
    with pytest.raises(AssertionError, match=r"differs from .*; not timed"):
        off.check()
