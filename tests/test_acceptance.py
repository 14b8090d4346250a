"""Skills on bars, through forecaster, Actor and market: a small version, and the whole one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.acceptance import FULL, QUICK, RANDOM_BANKS, run
from tests.acceptance_report import random_means, report, verdicts

SEEDS = range(8)


def test_a_step_bank_corrects_a_regime_that_training_did_not_hold():
    outcome = run(QUICK, 0)
    arms = {arm.variant: arm for arm in outcome.arms}
    assert set(arms) == {"step", "original", "finetune"}
    step = arms["step"]
    assert step.live >= 1 and step.changed > 0
    assert step.delta > 0 and step.delta > np.mean(outcome.random)
    assert len(outcome.random) == RANDOM_BANKS
    # an arm that changes nothing is worth exactly nothing
    for arm in outcome.arms:
        assert arm.changed > 0 or (arm.delta == 0.0 and arm.low is None)


@pytest.mark.slow
def test_acceptance_on_eight_seeds():
    outcomes = [run(FULL, seed) for seed in SEEDS]
    print(report(outcomes))
    step, original, _ = verdicts(outcomes)
    assert step.delta.low is not None and step.delta.low > 0
    assert step.significant >= 6
    noise = random_means(outcomes)
    error = noise.std(ddof=1) / np.sqrt(len(noise))
    assert abs(noise.mean()) <= 2 * error
    gain = np.array([outcome.arms[0].delta for outcome in outcomes]) - noise
    assert gain.mean() > 2 * gain.std(ddof=1) / np.sqrt(len(gain))
    # the original settings are kept as the measured failure
    assert original.delta.value is not None and step.delta.value is not None
    assert original.delta.value < step.delta.value / 2


@pytest.mark.slow
def test_a_base_that_saw_both_regimes_still_goes_through_the_gate():
    from dataclasses import replace

    outcome = run(replace(FULL, mixed_base=True), 0)
    (step,) = (arm for arm in outcome.arms if arm.variant == "step")
    assert step.adopted == (step.validation_low is not None and step.validation_low > 0)
