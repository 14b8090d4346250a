import dataclasses

import numpy as np
import pytest

from backtest.errors import DataError
from tests.backtest.agent.toy import FIRST_BAR, N_BARS, bar_part, plan, settings


def test_rows_of_another_shape_are_refused():
    with pytest.raises(DataError, match=r"float32\[600, 115\]|float32\[600, 114\]"):
        plan(bar_part=bar_part()[:, :114])
    with pytest.raises(DataError, match="float64"):
        plan(bar_part=bar_part().astype(np.float64))
    with pytest.raises(DataError, match="n >= 1"):
        plan(bar_part=bar_part()[:0])


def test_a_gap_is_named_by_bar():
    rows = bar_part()
    rows[20, 7] = np.nan
    with pytest.raises(DataError, match=f"bar {FIRST_BAR + 20}: column 7 .* nan"):
        plan(bar_part=rows)


def test_stop_bar_is_one_past_the_last():
    assert plan().stop_bar == FIRST_BAR + N_BARS


def test_identity_names_what_decides_the_result():
    rows = bar_part()
    rows[0, 100] += 1
    changes = [
        {},
        {"seed": 1},
        {"stream": 5},
        {"config_hash": "x"},
        {"first_bar": 3},
        {"device": "cuda"},
        {"learner": settings(gamma=0.51)},
        {"bypass": "both"},
        {"bar_part": rows},
    ]
    assert len({plan(**c).identity for c in changes}) == len(changes)
    same = dataclasses.replace(plan(), stop=lambda: True, progress=print)
    assert same.identity == plan().identity
