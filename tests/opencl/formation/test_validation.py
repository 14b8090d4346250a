"""The walk through validation: every variant as if it were alone, each strength, each bank."""

import numpy as np
import pytest

from backtest.agent.skills.choice import best, entries
from backtest.market.layout import End
from opencl.formation.actor import Actor
from opencl.formation.collection import collect
from opencl.formation.validation import (
    random_snapshots,
    trial,
    try_banks,
    walk,
    walk_policies,
)
from opencl.rollout import PolicySkills
from tests.opencl.formation.scene import actor_of, columns, ground_of, policy_of

N = 200
ALPHAS = (1.0, 3.0)


@pytest.fixture(scope="module")
def made():
    """An actor, other bars than those of its banks, and the banks."""
    actor = actor_of()
    banks, _ = collect(actor, ground_of(actor, *columns(260)), actor.new_banks())
    return actor, ground_of(actor, *columns(N, 5)), banks


def same(one, two):
    return all(
        getattr(one, name).tobytes() == getattr(two, name).tobytes()
        for name in ("action", "end", "returns", "pnl")
    )


def test_a_run_through_the_whole_window(made):
    actor, ground, _ = made
    (run,) = walk(actor, ground, [None])
    assert len(run.action) == N - 1 and run.end[-1] == End.TRUNCATED
    # step t earns at bar t + 1: six bars a session, the first session lacks one
    sums = [run.pnl[max(6 * i - 1, 0) : 6 * i + 5].sum() for i in range(len(run.returns))]
    np.testing.assert_allclose(run.returns, sums)


def test_runs_side_by_side_are_those_of_each_alone(made):
    actor, ground, banks = made
    task, step = (banks[name].snapshot(3.0) for name in ("task", "step"))
    sets = [None, PolicySkills(task=task), PolicySkills(step=step), PolicySkills(task, step)]
    together = walk(actor, ground, sets)
    for one, run in zip(sets, together, strict=True):
        assert same(walk(actor, ground, [one])[0], run)
    assert not any(same(together[0], run) for run in together[1:])


def test_without_a_skill_it_is_the_policy_bit_for_bit(made):
    actor, ground, _ = made
    empty = {name: bank.snapshot(3.0) for name, bank in actor.new_banks().items()}
    none, *others = walk(actor, ground, [None, PolicySkills(), PolicySkills(**empty)])
    assert all(same(none, run) for run in others)
    (plain,) = walk_policies(actor, ground, [actor.weights])
    assert same(none, plain)


def test_policies_without_skills(made):
    actor, ground, _ = made
    other = policy_of(actor.config, seed=1).weights
    one, two = walk_policies(actor, ground, [actor.weights, other])
    assert same(two, walk_policies(actor, ground, [other])[0]) and not same(one, two)


def test_each_bank_at_each_strength_then_both_at_their_best(made):
    actor, ground, banks = made
    (reference,) = walk(actor, ground, [None])
    tried = try_banks(actor, ground, banks, reference)
    strengths = [dict(one.alpha) for one in tried]
    assert strengths[:-1] == [{name: a} for name in ("task", "step") for a in ALPHAS]
    assert tried[-1].variant == "both"
    for name in ("task", "step"):
        top = best([one for one in tried if one.variant == name])
        assert tried[-1].alpha[name] == top.alpha[name]
    (run,) = walk(actor, ground, [PolicySkills(step=banks["step"].snapshot(1.0))])
    again = trial(actor, "step", {"step": 1.0}, run, reference)
    one = tried[2]
    assert (again.delta, again.changed) == (one.delta, one.changed)
    assert one.changed == np.any(run.action != reference.action, axis=1).sum() > 0
    gain = (run.returns - reference.returns).mean() / reference.returns.std(ddof=1)
    assert one.delta.value == pytest.approx(gain)


def test_banks_without_a_skill_are_tried_and_inert(made):
    actor, ground, _ = made
    (reference,) = walk(actor, ground, [None])
    tried = try_banks(actor, ground, actor.new_banks(), reference)
    assert [one.changed for one in tried] == [0] * 5
    assert all((one.delta.value, one.delta.low) == (0.0, None) for one in tried)
    chosen = [e["variant"] for e in entries(tried, ["task", "step"], {"none": ""}) if e["chosen"]]
    assert chosen == ["none"]


def test_random_directions_keep_the_keys(made):
    actor, _, banks = made
    bank, whole = banks["step"], banks["step"].snapshot(3.0)
    draws, again = (random_snapshots(actor, bank, 3.0, 3) for _ in range(2))
    used = bank.state.used != 0
    for one, two in zip(draws, again, strict=True):
        assert np.array_equal(one.keys, whole.keys) and np.array_equal(one.shift, two.shift)
        size, want = (np.linalg.norm(s.shift[used], axis=1) for s in (one, whole))
        np.testing.assert_allclose(size, want, rtol=1e-5)
    assert not np.array_equal(draws[0].shift, draws[1].shift)


def test_nothing_is_written_to_a_bank(made, monkeypatch):
    actor, ground, banks = made
    before = {name: bank.content_hash() for name, bank in banks.items()}
    launches, play = [], Actor.play

    def recorded(*arguments, **options):
        launches.append(arguments)
        return play(*arguments, **options)

    monkeypatch.setattr(Actor, "play", recorded)
    (reference,) = walk(actor, ground, [None])
    try_banks(actor, ground, banks, reference)
    assert {name: bank.content_hash() for name, bank in banks.items()} == before
    assert len(launches) == 3  # all strengths in one
