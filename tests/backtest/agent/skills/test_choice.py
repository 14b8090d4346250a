"""The adoption gate and the choice, on intervals that a person can follow."""

import numpy as np
import pytest

from backtest import rng
from backtest.agent.skills.choice import Trial, adopted, best, chosen, entries, paired_gain
from backtest.config import Evaluation
from backtest.evaluation.ablation import gate_faults
from backtest.evaluation.intervals import Interval

KEY = rng.key(3, "ONE", "2000-02-21")
CHANCE = Evaluation(bootstrap=200)
PATHS = {"none": "policy", "finetune": "tuned"}


def trial(variant, value, low=None, *, changed=5, **alpha):
    high = None if low is None else value + 1
    return Trial(variant, alpha, changed, np.zeros(3), Interval(value, low, high, 3))


def by_name(found):
    return {entry["variant"]: entry for entry in found}


class TestPairedGain:
    def test_in_standard_deviations_of_the_reference(self):
        # ddof 1: sd of 0, 2, 4, 6 is sqrt(20/3); mean difference 1
        reference = np.array([0.0, 2.0, 4.0, 6.0])
        gain = paired_gain(reference + np.array([0.0, 1.0, 2.0, 1.0]), reference, KEY, CHANCE)
        assert gain.value == pytest.approx(1 / np.sqrt(20 / 3))
        assert gain.low < gain.value < gain.high and gain.n == 4

    def test_a_gain_in_every_session_lies_above_zero(self):
        reference = np.random.default_rng(0).normal(0, 1, 60)
        plus = np.random.default_rng(1).uniform(0.1, 0.5, 60)
        assert paired_gain(reference + plus, reference, KEY, CHANCE).low > 0
        assert paired_gain(reference - plus, reference, KEY, CHANCE).high < 0

    def test_an_equal_run_has_a_gain_of_zero_and_no_bounds(self):
        reference = np.array([1.0, -1.0, 2.0])
        assert paired_gain(reference, reference, KEY, CHANCE) == Interval(0.0, None, None, 3)

    @pytest.mark.parametrize("reference", [[], [5.0], [2.0, 2.0, 2.0]])
    def test_a_reference_without_deviation_defines_none(self, reference):
        reference = np.array(reference)
        found = paired_gain(reference + 1, reference, KEY, CHANCE)
        assert found == Interval(None, None, None, len(reference))


class TestBest:
    def test_the_largest_gain_and_the_earlier_of_equals(self):
        tried = [trial("step", 0.1, step=0.1), trial("step", 0.4, step=0.3)]
        tried += [trial("step", 0.4, step=1.0), trial("step", None, step=3.0)]
        assert best(tried).alpha == {"step": 0.3}

    def test_losses_and_undefined_gains(self):
        assert best([trial("step", -0.3, step=1.0), trial("step", -0.2, step=3.0)]).alpha["step"]
        assert best([trial("step", -0.3), trial("step", -0.2)]).delta.value == -0.2
        assert best([trial("step", None)]) is None and best([]) is None
        assert best([trial("step", None), trial("step", -1.0)]).delta.value == -1.0


class TestGate:
    def test_only_an_interval_above_zero_passes(self):
        assert adopted(trial("step", 0.3, 0.01))
        for value, low in ((0.3, 0.0), (0.3, -0.01), (0.0, None), (None, None)):
            assert not adopted(trial("step", value, low))
        assert not adopted(None)

    def test_both_needs_each_of_its_banks(self):
        good, bad, both = trial("task", 1, 0.5), trial("step", 1, -0.5), trial("both", 2, 1.5)
        assert adopted(both, [good, good])
        assert not adopted(both, [good, bad])
        assert not adopted(both, [good, None])
        assert not adopted(trial("both", 2, -1), [good, good])

    def test_the_adopted_one_with_the_largest_gain_is_chosen(self):
        passed = {"task": trial("task", 0.3, 0.1), "step": trial("step", 0.5, 0.05)}
        assert chosen(passed) == "step"
        assert chosen({}) == "none"
        even = {"task": trial("task", 0.5, 0.1), "step": trial("step", 0.5, 0.4)}
        assert chosen(even) == "task"


class TestEntries:
    TRIED = (
        trial("task", 0.1, -0.2, task=0.1),
        trial("task", 0.2, -0.1, changed=0, task=1.0),
        trial("step", 0.6, 0.2, changed=9, step=0.1),
        trial("step", 0.5, 0.4, step=1.0),
        trial("both", 0.9, 0.7, task=1.0, step=0.1),
        trial("finetune", 2.0, 1.5),
    )

    def test_every_variant_once_and_none_first(self):
        found = entries(self.TRIED, ["task", "step"], PATHS)
        assert [e["variant"] for e in found] == ["none", "task", "step", "both", "finetune"]
        assert gate_faults(["task", "step"], True, found) == []
        rows = by_name(found)
        # the best strength decides, not the one with the best bound
        assert rows["step"] == {
            "variant": "step",
            "alpha": {"step": 0.1},
            "adopted": True,
            "chosen": True,
            "validation_delta": 0.6,
            "validation_low": 0.2,
            "validation_high": 1.6,
            "decisions_changed_validation": 9,
            "policy": "policy",
        }
        assert rows["task"]["alpha"] == {"task": 1.0} and not rows["task"]["adopted"]
        assert rows["task"]["decisions_changed_validation"] == 0
        # `both` gains most, but its task bank did not pass
        assert not rows["both"]["adopted"] and not rows["both"]["chosen"]
        # training on is a comparison, whatever it gains
        assert rows["finetune"]["policy"] == "tuned" and not rows["finetune"]["adopted"]
        assert not rows["none"]["chosen"] and rows["none"]["validation_delta"] is None

    def test_both_is_chosen_when_all_pass_and_it_gains_most(self):
        tried = [*self.TRIED, trial("task", 0.3, 0.1, task=3.0)]
        found = by_name(entries(tried, ["task", "step"], PATHS))
        assert [name for name, e in found.items() if e["adopted"]] == ["task", "step", "both"]
        assert [name for name, e in found.items() if e["chosen"]] == ["both"]

    def test_nothing_passes(self):
        tried = [trial("step", -0.1, -0.4, step=0.1), trial("step", 0.1, -0.2, step=1.0)]
        found = by_name(entries(tried, ["step"], {"none": "policy"}))
        assert list(found) == ["none", "step"]
        assert found["none"]["chosen"] and not found["step"]["chosen"]
        assert found["step"]["alpha"] == {"step": 1.0}

    def test_an_undefined_gain_is_a_row_too(self):
        tried = [trial("step", None, step=0.1), trial("step", None, step=1.0)]
        rows = by_name(entries(tried, ["step"], {"none": "policy"}))
        assert rows["step"]["validation_delta"] is None and not rows["step"]["adopted"]
        assert rows["step"]["alpha"] == {"step": 0.1} and rows["none"]["chosen"]
