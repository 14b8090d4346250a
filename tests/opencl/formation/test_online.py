"""ONLINE beside the kernel: the same decisions while directions stay, the same rows when not."""

from dataclasses import replace

import numpy as np
import pytest

from backtest.agent.skills.online import play_online
from opencl.formation.collection import collect
from opencl.out_of_sample import OutOfSample
from opencl.plays import Entry, play
from opencl.rollout import PolicySkills
from opencl.variants import load_variants, seed_summaries
from tests.opencl.formation.scene import actor_of, columns, ground_of
from tests.skills import KEY, NAME, SLOTS

N, ALPHA = 80, 3.0


@pytest.fixture(scope="module")
def made():
    actor = actor_of()
    banks, _ = collect(actor, ground_of(actor, *columns(260)), actor.new_banks())
    return actor, ground_of(actor, *columns(N, 5)), banks


@pytest.mark.parametrize("names", [(), ("task",), ("step",), ("task", "step")])
def test_without_turning_it_decides_as_the_kernel_in_inference(made, names):
    actor, ground, banks = made
    used = {name: banks[name] for name in names}
    skills = PolicySkills(**{name: bank.snapshot(ALPHA) for name, bank in used.items()})
    start = np.array([ground.first])
    kernel = actor.play(ground, start, ground.steps, [skills], portfolio=True)

    def online(turn):
        return play_online(
            actor.network,
            used,
            dict.fromkeys(names, ALPHA),
            ground.rollout.tape,
            ground.states,
            actor.config.learner,
            actor.config.skills.bank,
            turn=turn,
        )

    still = online(turn=False)
    # two implementations of the network, float32: no value of this seed is so close to another
    assert np.array_equal(still.action, kernel.action[:, 0])
    assert np.array_equal(still.slots, kernel.slots[:, 0])
    assert np.array_equal(still.trace["end"], kernel.end[:, 0])
    np.testing.assert_allclose(still.trace["equity"], kernel.equity[:, 0], rtol=1e-6)
    for name, place in (("task", 0), ("step", 1)):
        assert (still.slots[:, place] >= 0).any() == (name in names)
    if names:
        assert not np.array_equal(online(turn=True).action, still.action)


def test_variants_with_and_without_banks(skilled):
    """Those without banks are the kernel's; the rest account for every bar of the window."""
    fold = skilled.fold(NAME, KEY)
    (summary, _) = seed_summaries(skilled, NAME, KEY, skilled.fold_id(NAME, fold))
    variants = [
        v for v in load_variants(skilled, summary) if v.name in ("none", "both", "finetune")
    ]
    frozen = OutOfSample.open(skilled, NAME, fold, variants[0].policy)
    skills = skilled.config.skills.model_copy(update={"online": True})
    online = replace(frozen, config=skilled.config.model_copy(update={"skills": skills}))
    ((runs,), (still,)) = (play([Entry(window, variants)]) for window in (online, frozen))
    assert [run.variant.name for run in runs] == [variant.name for variant in variants]
    for run, other in zip(runs, still, strict=True):
        assert run.episode.trace.dtype == other.episode.trace.dtype
        assert (run.action.shape, run.action.dtype) == (other.action.shape, other.action.dtype)
        if not run.variant.banks:
            assert run.slots is None
            assert run.episode.trace.tobytes() == other.episode.trace.tobytes()
            continue
        assert (run.slots.shape, run.slots.dtype) == (other.slots.shape, other.slots.dtype)
        for bank in run.variant.banks:
            hits, searches = run.retrievals(bank, SLOTS)
            assert hits.sum() > 0 and sum(searches.values()) == len(fold.test)
