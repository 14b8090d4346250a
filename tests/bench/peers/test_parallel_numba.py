"""The numba market is the definition, ruin, lots and rolls included."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("numba")

from backtest.market.layout import BarFlag, Fill
from tests.bench.market import BARS
from tests.bench.peers.parallel_numba import NumbaMarket, check
from tests.bench.scene import gaussian_tape


@pytest.mark.parametrize("changed", [{}, {"initial_capital": 2000}, {"lot_size": 0.25}])
def test_the_numba_market_equals_numpy(changed):
    tape = gaussian_tape(BARS)
    params, bars = tape.params.copy(), tape.bars.copy()
    for name, value in changed.items():
        params[name] = value
    draw = np.random.default_rng(0).random(len(bars))
    bars["flags"] |= np.where(draw < 0.1, BarFlag.ROLL, 0).astype(np.uint32)
    bars["flags"] |= np.where(draw > 0.9, BarFlag.NO_VOLUME, 0).astype(np.uint32)
    check(replace(tape, params=params, bars=bars))


def test_an_unknown_kind_of_market_is_refused():
    tape = gaussian_tape(10)
    params = tape.params.copy()
    params["fill"] = Fill.CLOSE
    with pytest.raises(ValueError, match="next open only"):
        NumbaMarket(replace(tape, params=params))
