"""A variant against `none` on hand-worked runs: decisions, paired PnL, words."""

import numpy as np
import pytest

from backtest import rng
from backtest.config import Evaluation
from backtest.errors import DataError
from backtest.evaluation.ablation import (
    Outcome,
    ablation_row,
    decisions_changed,
    gate_faults,
    paired_pnl,
    picks,
    strength,
    verdict,
)
from backtest.market.layout import End

KEY = rng.key(0, "SP500", "2011-01-01")
CHANCE = Evaluation(bootstrap=200, confidence=0.9)
RUNNING, TERMINATED, DEAD = int(End.RUNNING), int(End.TERMINATED), int(End.DEAD)
# Four decisions: direction, magnitude, order, urgency.
BASE = np.array([[2, 2, 0, 2], [1, 2, 0, 2], [0, 1, 0, 2], [0, 0, 0, 2]], np.uint8)


def ends(*codes):
    return np.array(codes, np.uint8)


class TestDecisions:
    def test_a_decision_counts_once_whatever_branches_differ(self):
        other = BASE.copy()
        other[1, 1] = 0  # one branch
        other[2] = [2, 2, 1, 0]  # all four
        running = ends(*[RUNNING] * 4)
        assert decisions_changed(other, running, BASE, running) == 2
        assert decisions_changed(BASE, running, BASE, running) == 0

    def test_rows_after_the_end_of_either_run_are_no_decisions(self):
        other = BASE[:, ::-1].copy()  # every row differs
        running = ends(*[RUNNING] * 4)
        ruined = ends(RUNNING, TERMINATED, DEAD, DEAD)
        assert decisions_changed(other, running, BASE, running) == 4
        assert decisions_changed(other, ruined, BASE, running) == 2
        assert decisions_changed(other, running, BASE, ruined) == 2

    def test_any_number_of_episodes(self):
        other = np.stack([BASE, BASE], 1)
        other[3, 1, 0] = 3
        end = np.zeros((4, 2), np.uint8)
        assert decisions_changed(other, end, np.stack([BASE, BASE], 1), end) == 1


class TestPairedPnl:
    session = np.array([7, 7, 8, 9, 9, 10])

    def test_the_value_is_the_difference_of_the_sums_over_sessions(self):
        pnl = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
        reference = np.array([1.0, 0.0, 4.0, 0.0, 0.0, 6.0])
        found = paired_pnl(self.session, pnl, reference, KEY, CHANCE)
        # by session: 2, -1, 9, 0
        assert (found.value, found.n) == (10.0, 4)
        assert found.low < found.value < found.high
        assert found.low >= -4 and found.high <= 36  # four draws of one session each

    def test_equal_runs_differ_by_exactly_nothing(self):
        pnl = np.array([1.0, -2.0, 3.0, 4.0, 5.0, 6.0])
        found = paired_pnl(self.session, pnl, pnl, KEY, CHANCE)
        assert (found.value, found.low, found.high, found.n) == (0.0, None, None, 4)

    def test_a_shift_of_every_session_has_no_interval(self):
        pnl = np.arange(4.0)
        found = paired_pnl(np.arange(4), pnl + 2, pnl, KEY, CHANCE)
        assert (found.value, found.low, found.high) == (8.0, None, None)

    def test_equal_keys_give_equal_intervals(self):
        draws = np.random.default_rng(0).normal(1, 5, (2, 60))
        session = np.arange(60)
        first = paired_pnl(session, *draws, KEY, CHANCE)
        assert first == paired_pnl(session, *draws, KEY, CHANCE)
        other = rng.key(1, "SP500", "2011-01-01")
        assert first != paired_pnl(session, *draws, other, CHANCE)

    def test_noise_that_both_runs_share_does_not_widen_the_interval(self):
        chance = np.random.default_rng(1)
        shared, own = chance.normal(0, 100, 80), chance.normal(1, 0.5, 80)
        found = paired_pnl(np.arange(80), shared + own, shared, KEY, CHANCE)
        assert found.low > 0 and found.high - found.low < 40


@pytest.mark.parametrize(
    ("alpha", "value"),
    [
        ({"task": None, "step": None}, None),
        ({"task": None, "step": 0.3}, 0.3),
        ({"task": 1.0, "step": 1.0}, 1.0),
        ({"task": 1.0, "step": 0.3}, None),  # the rows of task and step say which
        ({}, None),
    ],
)
def test_the_strength_of_a_variant(alpha, value):
    assert strength(alpha) == value


@pytest.mark.parametrize(
    ("variant", "adopted", "changed", "words"),
    [
        ("none", False, 0, "reference"),
        ("step", True, 12, "adopted"),
        ("step", False, 12, "not adopted"),
        ("step", True, 0, "inert"),
        ("both", False, 0, "inert"),
        ("finetune", False, 12, "comparison"),
        ("finetune", False, 0, "inert"),
    ],
)
def test_verdicts(variant, adopted, changed, words):
    assert verdict(variant, adopted, changed) == words


def test_a_row_holds_what_validation_said_and_what_the_test_window_showed():
    entry = {"variant": "step", "alpha": {"task": None, "step": 0.3}, "adopted": True}
    entry |= {"chosen": False, "validation_delta": 0.2, "validation_low": 0.1}
    end, session = np.zeros(4, np.uint8), np.arange(4)
    other = BASE.copy()
    other[0, 0] = 0
    reference = Outcome(BASE, end, np.array([0.0, 1.0, 0.0, -1.0]), 0.5)
    found = Outcome(other, end, np.array([1.0, 1.0, 2.0, -2.0]), 0.75)
    row = ablation_row(entry, found, reference, session, KEY, CHANCE)
    bounds = row.pop("low"), row.pop("high")
    assert bounds[0] < 2.0 < bounds[1]
    assert row == {
        "variant": "step",
        "alpha": 0.3,
        "adopted": True,
        "chosen": False,
        "decisions_changed": 1,
        "validation_delta": 0.2,
        "delta_sharpe": 0.25,
        "delta_pnl": 2.0,
        "verdict": "adopted",
    }
    flat = Outcome(BASE, end, np.zeros(4), None)
    assert ablation_row(entry, found, flat, session, KEY, CHANCE)["delta_sharpe"] is None
    same = ablation_row(entry, reference, reference, session, KEY, CHANCE)
    assert (same["decisions_changed"], same["delta_pnl"], same["low"]) == (0, 0.0, None)
    assert same["verdict"] == "inert"


def row(seed, variant, chosen):
    return {"seed": seed, "variant": variant, "chosen": chosen}


def test_one_choice_a_seed():
    rows = [
        row(0, "none", True),
        row(0, "step", False),
        row(1, "none", False),
        row(1, "step", True),
    ]
    assert picks(rows) == {0: "none", 1: "step"}
    with pytest.raises(DataError, match=r"seed 1: validation chose nothing"):
        picks([row(1, "none", False)])
    with pytest.raises(DataError, match=r"seed 0: validation chose \['none', 'step'\]"):
        picks([row(0, "none", True), row(0, "step", True)])


def entry(variant, alpha=None, low=None, delta=0.1, adopted=False, chosen=False, changed=9):
    """What validation said of a variant whose only bank is step."""
    alphas = {"task": None, "step": alpha}
    said = {"variant": variant, "alpha": alphas, "adopted": adopted, "chosen": chosen}
    said |= {"validation_delta": delta, "validation_low": low, "validation_high": 0.4}
    return said | {"decisions_changed_validation": changed}


NONE = entry("none", delta=None, chosen=True)
UNCHOSEN = NONE | {"chosen": False}
TUNED = entry("finetune", low=0.05)


@pytest.mark.parametrize(
    ("entries", "faults"),
    [
        ([NONE, entry("step", 1.0, -0.1), TUNED], []),
        ([UNCHOSEN, entry("step", 1.0, 0.1, adopted=True, chosen=True), TUNED], []),
        # an empty bank cannot be tried
        ([NONE, entry("step", None, delta=None), TUNED], []),
        # adopted, and yet another was better
        ([NONE, entry("step", 1.0, 0.1, adopted=True), TUNED], []),
        ([NONE, TUNED], ["variant step is missing"]),
        (
            [NONE, entry("step", 1.0), entry("task", 1.0), TUNED],
            ["variant task was not asked for"],
        ),
        # a reference that never trades defines no gain
        ([NONE, entry("step", 1.0, delta=None), TUNED], []),
        ([NONE, entry("step", 1.0, changed=None), TUNED], ["step was not tried on validation"]),
        (
            [UNCHOSEN, entry("step", 1.0, -0.1, adopted=True, chosen=True), TUNED],
            ["step is adopted with a validation interval from -0.1"],
        ),
        (
            [NONE, entry("step", 1.0, None, adopted=True), TUNED],
            ["step is adopted with a validation interval from None"],
        ),
        (
            [NONE, entry("step", 1.0, 0.1), TUNED],
            ["step is not adopted although its validation interval begins at 0.1"],
        ),
        ([UNCHOSEN, entry("step", 1.0), TUNED], ["0 variants are chosen, one was expected"]),
        (
            [UNCHOSEN, entry("step", 1.0, -0.1, chosen=True), TUNED],
            ["step is chosen without being adopted"],
        ),
    ],
)
def test_the_gate(entries, faults):
    assert gate_faults(("step",), True, entries) == faults


def test_two_banks_are_tried_together_as_well():
    assert gate_faults(("task", "step"), False, [NONE]) == [
        "variant both is missing",
        "variant step is missing",
        "variant task is missing",
    ]
    assert gate_faults((), False, [NONE]) == []
