"""It must learn, and only what is there: the controls at CI size, five seeds each.

The slow run repeats them at full size (AR(1) of 0.15).
"""

from dataclasses import replace

import pytest

from backtest.controls import FULL, QUICK, judge
from backtest.sections import Runtime
from opencl.controls import ControlSpec, run_control
from pipelines.runner import runner

SEEDS = range(5)
# As few as show it: the edge of AR(1) lies eight standard errors above 0 by then, the leak needs
# its updates to come near the best, and where nothing is there fewer show it just as well.
UPDATES = {"positive": 600, "negative": 600, "leak": 1000, "shuffled": 400}


@pytest.fixture(scope="module")
def trials():
    with runner(Runtime(runner="process", workers=2)) as pool:
        yield pool


def verdict(trials, kind, size):
    specs = [ControlSpec(kind, size, seed) for seed in SEEDS]
    return judge(kind, list(trials.imap(run_control, specs)))


@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=pytest.mark.slow if k == "shuffled" else ()) for k in UPDATES],
)
def test_control(trials, kind):
    found = verdict(trials, kind, replace(QUICK, updates=UPDATES[kind]))
    assert found.passed, found.text


@pytest.mark.slow
@pytest.mark.parametrize("kind", UPDATES)
def test_control_at_full_size(trials, kind):
    found = verdict(trials, kind, FULL)
    assert found.passed, found.text
