"""What a market's kernels are compiled for."""

from itertools import product

import numpy as np
import pytest

from backtest.market.layout import Fill, Formula
from backtest.market.rough import rough_params, rough_tape
from opencl.layout import preamble
from opencl.market import MarketRules
from opencl.simulate import Program as Compiled
from opencl.simulate import Simulator


@pytest.mark.parametrize("formula, fill, lot", list(product(Formula, Fill, (0.0, 0.3))))
def test_rules_are_read_from_parameters_and_rendered(formula, fill, lot):
    rules = MarketRules.of(rough_params(formula, fill, lot))
    assert rules == MarketRules(formula, fill, lot > 0)
    head = preamble(**rules.defines())
    assert f"#define CALIBRATED ({int(formula == Formula.CALIBRATED)})" in head
    assert f"#define FILLS_AT_CLOSE ({int(fill == Fill.CLOSE)})" in head
    assert f"#define WHOLE_LOTS ({int(lot > 0)})" in head


def test_markets_of_one_kind_share_a_program(device, monkeypatch):
    compiled = []

    def program(*given):
        compiled.append(given[2])
        return Compiled(*given)

    monkeypatch.setattr("opencl.simulate.Program", program)
    run, start = Simulator(device), np.zeros(64, np.int64)
    targets = np.ones((8, 64), np.float32)
    for formula, lot in (
        (Formula.CALIBRATED, 0.0),
        (Formula.COMPOSITE, 0.0),
        (Formula.CALIBRATED, 0.0),
    ):
        p = rough_params(formula, Fill.CLOSE, lot)
        p["max_position"] += len(compiled)  # another number is no other kind
        run.backtest(rough_tape(p, 20), start, targets)
    assert [sizes["CALIBRATED"] for sizes in compiled] == [1, 0]
