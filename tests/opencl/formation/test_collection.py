"""COLLECT: one trajectory in the order of time, given to the banks row by row."""

from dataclasses import replace

import numpy as np
import pytest

from backtest.agent import streams
from backtest.agent.bank.retrieval import retrieve_rows
from backtest.agent.network import build
from backtest.errors import ConfigError
from backtest.market.layout import End
from opencl.bank import DeviceBank
from opencl.formation import collection
from opencl.formation.actor import Actor
from opencl.formation.collection import collect, trajectory
from tests.opencl.bank_scenes import assert_same_banks
from tests.opencl.formation.scene import START, actor_of, columns, config_of, ground_of, policy_of
from tests.study import configuration

N = 260
CLOSE, STATES = columns(N)


@pytest.fixture(scope="module")
def actor():
    return actor_of()


@pytest.fixture(scope="module")
def ground(actor):
    return ground_of(actor, CLOSE, STATES)


def fed_by_hand(actor, ground):
    """The banks of the definition, each row given by itself."""
    banks = actor.new_banks()
    found = actor.decisions(ground, trajectory(actor, ground))
    every = np.arange(len(found))
    for index, (name, bank) in enumerate(banks.items()):
        looked = [found.contexts(rows)[index] for rows in found.blocks(every)]
        draws = streams.generator(actor.policy.seed, actor.stream, streams.Stage.CONTEXT, index)
        bank.fit_context(np.concatenate(looked), draws)
        for rows in found.blocks(every[found.complete]):
            h, g = found.contexts(rows)[index], found.gradients(rows)[name]
            for row in range(len(rows)):
                bank.update(h[row], g[row])
        bank.close_collection()
    return banks


def test_it_is_the_definition_fed_row_by_row(actor, ground):
    banks, done = collect(actor, ground, actor.new_banks())
    assert list(banks) == ["task", "step"]
    by_hand = fed_by_hand(actor, ground)
    assert_same_banks(by_hand.values(), banks.values())
    for name, bank in banks.items():
        assert bank.state.used.any() and bank.state.norm_ref > 0
        assert bank.counters["rows"] == done.gradient_rows
        contexts = found_contexts(actor, ground)[name]
        hits = retrieve_rows(bank.snapshot(), contexts) >= 0
        assert done.coverage[name] == pytest.approx(hits.mean())
    # the last four decisions never see five rewards
    assert (done.rows, done.gradient_rows, done.episodes) == (N - 1, N - 5, 1)
    again, _ = collect(actor, ground, actor.new_banks())
    assert_same_banks(banks.values(), again.values())


def found_contexts(actor, ground):
    found = actor.decisions(ground, trajectory(actor, ground))
    task, step = found.contexts(np.arange(len(found)))
    return {"task": task, "step": step}


def test_a_long_window_is_looked_at_in_even_steps(actor, ground, monkeypatch):
    monkeypatch.setattr(collection, "CONTEXT_ROWS", 100)
    banks, _ = collect(actor, ground, actor.new_banks())
    want = found_contexts(actor, ground)["step"][::3]  # 259 decisions, at most 100 of them
    np.testing.assert_allclose(banks["step"].state.center, want.mean(axis=0), atol=1e-6)


def test_after_a_ruin_it_restarts_at_the_next_bar(actor):
    ground = ground_of(actor, CLOSE, STATES, initial_capital=30.0, commission=1.0, ruin_level=15.0)
    past = trajectory(actor, ground)
    episodes = past.reward.shape[1]
    lengths = past.alive.sum(axis=0)
    assert episodes > 2 and past.start[0] == START
    assert np.array_equal(past.start[1:], past.start[0] + lengths.cumsum()[:-1])
    ends = past.end[lengths - 1, np.arange(episodes)]
    assert (ends[:-1] == End.TERMINATED).all() and ends[-1] != End.RUNNING
    # a fresh account each time: flat, at the peak, no step done
    for slot in (0, 1, 2, 4, 8):
        assert not past.portfolio[0, :, slot].any()
    found = actor.decisions(ground, past)
    bars = past.start[found.episode] + found.step
    assert np.array_equal(bars, np.arange(START, START + N - 1))
    _, done = collect(actor, ground, actor.new_banks())
    assert (done.rows, done.episodes) == (N - 1, episodes)
    # what a ruin cut short is complete
    cut = min(4, lengths[-1]) if ends[-1] == End.TRUNCATED else 0
    assert done.gradient_rows == N - 1 - cut


def test_bars_to_come_change_no_earlier_decision_and_no_earlier_byte(monkeypatch):
    """The first look apart, which is at the whole window: a fixed centre and threshold here."""
    actor = actor_of("skills.bank.centering=none", "skills.bank.similarity_threshold=0.3")
    rows, kept = 16, 163  # the last bar that stays as it is
    held, update = [], DeviceBank.update_rows

    def recorded(bank, *arguments):
        result = update(bank, *arguments)
        state = bank.read()[0].state_dict()
        state.pop("quantiles")  # of the look: it decides nothing here
        held.append(state)
        return result

    monkeypatch.setattr(DeviceBank, "update_rows", recorded)
    monkeypatch.setattr(collection, "BLOCK", rows)
    later = np.arange(N) > kept
    close, other = columns(N, 9)
    runs, found = [], []
    for prices, states in (
        (CLOSE, STATES),
        (np.where(later, close, CLOSE), np.where(later[:, None], other, STATES)),
    ):
        ground = ground_of(actor, prices, states)
        held.clear()
        found.append(trajectory(actor, ground))
        collect(actor, ground, actor.new_banks())
        runs.append(held.copy())
    one, two = found
    assert np.array_equal(one.action[: kept + 1], two.action[: kept + 1])
    assert not np.array_equal(one.action, two.action)
    assert np.array_equal(one.reward[:kept], two.reward[:kept])
    # decision b has its five rewards at bar b + 5; both banks are given each block
    known = 2 * ((kept - 4) // rows)
    for before, after in zip(runs[0][:known], runs[1][:known], strict=True):
        assert all(before[name].tobytes() == after[name].tobytes() for name in before)
    assert runs[0][known - 1]["used"].any()
    assert any(runs[0][-1][name].tobytes() != runs[1][-1][name].tobytes() for name in ("keys",))


def test_market_features_can_be_the_key():
    actor = actor_of('skills.banks=["step"]', "skills.bank.key=features")
    ground = ground_of(actor, CLOSE, STATES)
    banks, _ = collect(actor, ground, actor.new_banks())
    bank = banks["step"]
    assert bank.key_dim == 42 and bank.state.used.any()
    np.testing.assert_allclose(bank.state.center, STATES[:-1, :42].mean(axis=0), atol=1e-6)
    # the size of a correction is that of the hidden state, not of the key
    sizes = np.linalg.norm(found_contexts(actor, ground)["step"][:-4], axis=1)
    assert bank.state.h_ref == pytest.approx(sizes.mean(), rel=1e-4)


def test_features_that_could_be_taken_for_a_hidden_state_are_refused():
    config = config_of('skills.banks=["step"]', "skills.bank.key=features")
    sizes = config.network.model_copy(update={"scenarios": 7, "horizon": 3, "latent": 2})
    actor = actor_of('skills.banks=["step"]', "skills.bank.key=features")
    with pytest.raises(ConfigError, match="beside a step context of 42 values"):
        replace(actor, policy=replace(actor.policy, network=sizes)).new_banks()


def test_only_scenario_policies_have_skills(actor):
    config = configuration()
    state = build(config.network, np.random.default_rng(0)).numpy_state()
    policy = replace(policy_of(actor.config), network=config.network, state=state)
    with pytest.raises(ConfigError, match="skills extend the scenario network"):
        Actor.of(config, policy, "ONE", "x", actor.device)


def test_it_can_be_stopped_between_blocks(actor, ground):
    class StopError(Exception):
        pass

    def stop():
        raise StopError

    with pytest.raises(StopError):
        collect(actor, ground, actor.new_banks(), stop)
