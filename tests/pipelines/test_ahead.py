"""Which trials a run begins before their steps ask for them, and in which order."""

import pytest

from opencl import trials
from pipelines.execution import Study
from pipelines.outcome import silent
from tests.skills import BANKS, SCENARIO
from tests.study import FOLDS, copied


class Recorder:
    """Stands in for a runner."""

    def __init__(self):
        self.begun = []

    def ahead(self, fn, specs):
        self.begun += [(fn.__name__, s.fold_key, s.seed) for s in specs]


def begun(experiment):
    runner = Recorder()
    found = Study(experiment, "run", silent, force=False, accept_reward=False)
    found._ahead([("ONE", fold) for fold in experiment.folds("ONE")[:3]], runner)
    return found, runner.begun


@pytest.fixture
def banks(study, tmp_path):
    return copied(study, tmp_path, *SCENARIO, BANKS)


def test_without_banks_only_policies_are_trained(study):
    found, order = begun(study)
    assert order == [("train", key, seed) for key in FOLDS for seed in (0, 1)]
    assert set(found.trials) == {("ONE", key, seed, "train") for key in FOLDS for seed in (0, 1)}


def test_banks_follow_the_policies_that_they_wait_for(banks):
    """Two workers, two seeds: while banks are formed, another fold's policies were taken up."""
    found, order = begun(banks)
    assert [(name, key) for name, key, seed in order if seed == 0] == [
        ("train", FOLDS[0]),
        ("train", FOLDS[1]),
        ("form", FOLDS[0]),
        ("train", FOLDS[2]),
        ("form", FOLDS[1]),
        ("form", FOLDS[2]),
    ]
    assert len(order) == len(set(order)) == len(found.trials) == 12


def test_both_stages_count_as_progress(banks):
    found, _ = begun(banks)
    for stage, share in (("train", 1.0), ("form", 0.5)):
        found.hear(trials.Report("ONE", FOLDS[0], 1, "text", share, stage))
    assert sum(found.trials.values()) == 1.5
    assert found.trials["ONE", FOLDS[0], 1, "form"] == 0.5
