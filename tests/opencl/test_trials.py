"""Trials: what they report, and who makes what when several ask for the same."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import repeat

import pytest

from opencl import skills, trials
from opencl.training import TrainSpec
from pipelines.runner import InlineRunner
from tests.study import FOLDS, copied


@pytest.fixture
def spec(study, tmp_path):
    own = copied(study, tmp_path)
    return TrainSpec(own.config, own.lake.root, "ONE", FOLDS[0], 0, "test")


@pytest.fixture
def heard():
    """Reports of the trials of this process."""
    found = []
    trials.connect(lambda: False, found.append)
    yield found
    trials.disconnect()


@pytest.fixture
def steps(monkeypatch):
    """What was begun and ended in which order; stand-ins that take a moment."""
    found = []

    def stand_in(name):
        def make(spec, stop, log):
            found.append(f"{name} {spec.seed} begins")
            time.sleep(0.05)
            log(f"{name} {spec.seed}", 1.0)
            found.append(f"{name} {spec.seed} ends")
            return spec.lake / f"{name}_{spec.seed}"

        return make

    def train(specs, stop, logs):
        return [stand_in("train")(*one) for one in zip(specs, repeat(stop), logs, strict=False)]

    monkeypatch.setattr(trials, "train_seeds", train)
    monkeypatch.setattr(skills, "form_skills", stand_in("form"))
    return found


def test_reports_say_which_stage_they_are_of(spec, heard, steps):
    assert trials.train(spec) == spec.lake / "train_0"
    assert trials.form(spec) == spec.lake / "form_0"
    assert [(report.stage, report.text) for report in heard] == [
        ("train", "train 0"),
        ("train", "train 0"),  # banks ask for their policy, which is there or is made
        ("form", "form 0"),
    ]
    assert {(r.instrument, r.fold_key, r.seed) for r in heard} == {("ONE", FOLDS[0], 0)}


def test_banks_wait_for_the_policy_that_is_being_trained(spec, steps):
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(trials.train, spec)
        while not steps:
            time.sleep(0.001)
        pool.submit(trials.form, spec).result()
        first.result()
    assert steps[:2] == ["train 0 begins", "train 0 ends"]
    assert steps[-2:] == ["form 0 begins", "form 0 ends"]


def test_two_that_want_the_same_banks_take_turns_and_others_do_not_wait(spec, steps):
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(trials.form, [spec, spec, replace(spec, seed=1)]))
    own = [step for step in steps if step.startswith("form 0")]
    assert own == ["form 0 begins", "form 0 ends"] * 2
    assert steps.index("form 1 begins") < len(steps) - 1 - steps[::-1].index("form 0 ends")


def test_an_inline_runner_trains_the_seeds_of_a_fold_together(spec, steps, monkeypatch):
    groups, real = [], trials.train_seeds
    monkeypatch.setattr(
        trials, "train_seeds", lambda specs, *rest: groups.append(len(specs)) or real(specs, *rest)
    )
    other = replace(spec, fold_key=FOLDS[1])
    aux = spec.config.aux.model_copy(update={"alpha": not spec.config.aux.alpha})
    changed = replace(spec, config=spec.config.model_copy(update={"aux": aux}), seed=4)
    specs = [spec, replace(spec, seed=1), replace(other, seed=2), replace(spec, seed=3), changed]
    with InlineRunner() as runner:
        found = list(runner.imap(trials.train, specs))
        assert found == [spec.lake / f"train_{one.seed}" for one in specs]
        assert groups == [2, 1, 1, 1]  # neither other folds nor other settings
        assert list(runner.imap(trials.form, specs[:1])) == [spec.lake / "form_0"]
        assert list(runner.imap(abs, [-1, 2])) == [1, 2]
