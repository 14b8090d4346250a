"""The learner, replay, checkpoint and training of the scenario kind."""

import dataclasses

import numpy as np
import pytest
import torch

from backtest.agent import replay as replay_module
from backtest.agent.checkpoint import Policy, load_policy, save_policy
from backtest.agent.learner import C51Learner
from backtest.agent.replay import Batch, Replay
from backtest.agent.result import StoppedError
from backtest.agent.scenario.forecaster import Forecaster
from backtest.agent.scenario.network import ScenarioNetwork
from backtest.agent.streams import Stage, generator
from backtest.config import Learner
from backtest.errors import DataError, StoreError
from tests.backtest.agent.scenario.cases import network, rows, section, states
from tests.backtest.agent.test_experience import ENDS, REWARDS, experience
from tests.backtest.agent.test_train import (
    TINY,
    StopAfter,
    assert_optimal,
    assert_same,
    last_epoch,
    learned_values,
    train,
)
from tests.backtest.agent.toy import ToyEvaluator, bar_part, best_values, plan, settings

SIZES = section(hidden=(32, 32), atoms=31, horizon=2, latent=4)


def forecaster(sizes=SIZES) -> dict[str, np.ndarray]:
    made = Forecaster(sizes)
    made.initialise(np.random.default_rng(0))
    return made.numpy_state()


def scenario_plan(sizes=SIZES, **changes):
    """The toy market; its context lies in slots 0-2, which only the forecaster reads."""
    learner = settings(**changes)
    return plan(network=sizes, forecaster=forecaster(sizes), learner=learner, bypass="detached")


def learner(sizes=None, **changes) -> C51Learner:
    sizes = sizes or section()
    result = C51Learner(
        sizes, Learner(**changes), generator(0, 0, Stage.WEIGHTS), forecaster=forecaster(sizes)
    )
    result.set_range(2.5)
    return result


def batch(subject: C51Learner, count=48, seed=3) -> Batch:
    net, draws = subject.online, np.random.default_rng(seed)
    stack = net.network.stack_size

    def normal(*shape):
        return torch.from_numpy(draws.normal(size=shape).astype(np.float32))

    return Batch(
        state=states(net, *rows(count, seed, stack)),
        action=torch.from_numpy(draws.integers(0, [4, 3, 3, 3], (count, 4))),
        returns=normal(count),
        bootstrap=torch.full((count,), 0.512),
        next_state=states(net, *rows(count, seed + 1, stack)),
        weight=torch.from_numpy(draws.random(count).astype(np.float32)),
    )


def test_updates_fit_a_fixed_batch():
    subject = learner(section(stack_size=2, top_k=2), learning_rate=5e-3, target_every=1000)
    data = batch(subject, 32)
    updates = [subject.update(data) for _ in range(60)]
    assert updates[-1].figures[0] < updates[0].figures[0]
    assert updates[-1].error.mean() < 0.3 * updates[0].error.mean()


@pytest.mark.parametrize("target", [{"target_every": 1}, {"target_every": 0, "tau": 0.25}])
def test_the_forecaster_is_shared_and_never_moves(target):
    subject = learner(**target)
    assert isinstance(subject.online, ScenarioNetwork)
    assert subject.target.forecaster is subject.online.forecaster
    assert subject.target.critic
    before = subject.online.numpy_state()
    updates = [subject.update(batch(subject, seed=seed)) for seed in range(3)]
    after, target_state = subject.online.numpy_state(), subject.target.numpy_state()
    for name in before:
        if name.startswith("forecaster."):
            assert np.array_equal(after[name], before[name]), name
        elif name != "alpha.weight":
            moved = (after[name] != before[name]).any()
            assert moved or name.endswith("bias"), name
            assert (target_state[name] != before[name]).any() == moved
    assert updates[0].figures[3] > 0
    # 24 trained arrays make the vector of the optimiser; the forecaster's 12 are not in it
    trained = subject.online.trained().values()
    assert sum(p.numel() for p in trained) == subject._online.numel()
    frozen = sum(p.numel() for p in subject.online.forecaster.parameters())
    total = sum(p.numel() for p in subject.online.parameters())
    assert total == subject._online.numel() + frozen + 4


def test_widening_carries_the_policy_over():
    subject = learner()
    data = batch(subject)
    with torch.no_grad():
        before = subject.online.q_values(data.state)
        subject.widen_range(2.0)
        after = subject.online.q_values(data.state)
    # an untrained network: values near 0 with all mass spread over the old range
    assert (after - before).abs().max() < 0.25
    assert subject.online.support[-1] == 5


def buffer(net, *, stack=1, **changes) -> Replay:
    bars = np.random.default_rng(0).normal(size=(3100, 115)).astype(np.float32)
    made = Replay(64, bars, 900, stack_size=stack, context=net.context, **changes)
    made.insert(experience(ENDS, REWARDS), 3, 0.5, version=0)
    return made


def test_contexts_stand_behind_the_slots():
    net = network()
    drawn = buffer(net).take(torch.arange(11))
    assert drawn.state.shape == drawn.next_state.shape == (11, 128 + 72 + 12 + 3)
    for state in (drawn.state, drawn.next_state):
        torch.testing.assert_close(state[:, 128:], net.forecaster.context(state[:, :128]))


def test_contexts_of_many_bars_are_made_when_drawn(monkeypatch):
    net = network(section(stack_size=2))
    table = buffer(net, stack=2)
    monkeypatch.setattr(replay_module, "TABLE_BYTES", 1000)
    lazy = buffer(net, stack=2)
    assert table.states.shape[1] == 215
    assert lazy.states.shape[1] == 128
    for a, b in zip(
        *(vars(r.take(torch.arange(11))).values() for r in (table, lazy)),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_a_stack_holds_the_steps_before_in_the_same_episode():
    net = network(section(stack_size=3))
    made = buffer(net, stack=3)
    # rows go step by step: row 3 is step 1 of the first episode, row 9 its last step, 3
    state = made._state(torch.tensor([0, 3, 6, 9]))
    bars = made.states[:, 0] - 0
    slot = state[..., 112]  # 100*step + episode
    assert slot.tolist() == [[0, 0, 0], [100, 0, 0], [200, 100, 0], [300, 200, 100]]
    for row, step in enumerate((0, 1, 2, 3)):
        for back in range(3):
            if back <= step:
                assert state[row, back, 0] == bars[100 + step - back]
            else:  # before the episode
                assert not state[row, back].any()
    # after: three steps on, but the episode ends at step 4
    after = made._state(torch.tensor([0, 3, 6, 9]), "next_")
    assert after[..., 112].tolist() == [[300, 200, 100]] + [[400, 300, 200]] * 3
    newest = made.newest(2, 11)
    assert newest.shape == (2, 3, 215)
    copy = Replay(64, np.zeros((3100, 115), np.float32), 900, stack_size=3, context=net.context)
    copy.restore(made.state())
    assert all(np.array_equal(copy.state()[name], array) for name, array in made.state().items())


def test_a_stack_of_steps_gives_the_values_of_playing_them():
    """The replayed stack equals the interpretations an actor would have kept."""
    sizes = section(stack_size=3)
    net = network(sizes)
    bar, portfolio = rows(1, stack=3)
    x = states(net, bar, portfolio)
    with torch.no_grad():
        kept = [
            net._interpret(*(c.t() for c in net.contexts(x[:, j])), x[:, j]).t() for j in range(3)
        ]
        trunk = torch.cat(kept, dim=1)
        hidden = torch.relu(net.hidden(torch.relu(net.first(trunk))))
        torch.testing.assert_close(net.features(x), hidden)


def test_it_learns_the_optimal_policy_and_its_values():
    trained = train(scenario_plan(), evaluator=last_epoch())
    q, best = learned_values(trained.weights), best_values(0.5)
    np.testing.assert_allclose(q, best, atol=0.15)
    assert_optimal(q, best)
    assert trained.bypass.shape == (3, 4)


@pytest.mark.parametrize(
    ("sizes", "target"),
    [
        (SIZES, {"target_every": 7}),
        (section(hidden=(16, 16), stack_size=2, top_k=1), {"target_every": 0, "tau": 0.1}),
    ],
)
def test_stop_and_resume_is_bit_identical(tmp_path, sizes, target):
    script, path = [0.1, 0.3, 0.2], tmp_path / "state.safetensors"
    forecasts = bar_part()
    forecasts[:, 112] = np.random.default_rng(0).uniform(-1, 1, len(forecasts))

    def made(**changes):
        tiny = scenario_plan(sizes, **(TINY | target))
        return dataclasses.replace(tiny, bar_part=forecasts, **changes)

    whole = train(made(), evaluator=ToyEvaluator(script=script))
    with pytest.raises(StoppedError, match="epoch 2 of 3"):
        train(made(state_file=path, stop=StopAfter(10)), evaluator=ToyEvaluator(script=script))
    evaluator = ToyEvaluator(script=script, seen=["train", "validation"] * 2)
    resumed = train(made(state_file=path), evaluator=evaluator)
    assert_same(whole, resumed)
    assert np.array_equal(whole.bypass, resumed.bypass)
    assert whole.bypass.any(1).all()


@pytest.mark.device
def test_a_gpu_repeats_itself_bit_for_bit():
    tiny = scenario_plan(section(hidden=(16, 16), stack_size=2, top_k=1), **TINY)
    on_gpu = dataclasses.replace(tiny, device="cuda")
    assert_same(train(on_gpu), train(on_gpu))


def test_a_plan_needs_its_forecaster():
    with pytest.raises(DataError, match=r"first.weight is missing.*stage 0"):
        plan(network=SIZES)
    with pytest.raises(DataError, match=r"latent.bias is \(24,\), expected \(48,\)"):
        plan(network=section(**SIZES.model_dump() | {"latent": 8}), forecaster=forecaster())
    one, other = scenario_plan(), scenario_plan()
    assert one.identity == other.identity
    changed = forecaster()
    changed["mu.bias"] = changed["mu.bias"] + 1
    assert dataclasses.replace(one, forecaster=changed).identity != one.identity
    assert dataclasses.replace(one, bypass="off").identity != one.identity


def policy(sizes) -> Policy:
    return Policy(
        state=network(sizes).numpy_state(),
        network=sizes,
        branches=("direction", "magnitude"),
        v_max=2.5,
        center=np.zeros(42),
        scale=np.ones(42),
        base=100.0,
        seed=1,
        config_hash="c" * 64,
        epoch=2,
        update=1500,
        steps=98_304,
        labels={},
        aux={"first.weight": np.arange(6, dtype=np.float32).reshape(2, 3)},
    )


def test_a_policy_round_trips_with_its_forecaster(tmp_path):
    path = tmp_path / "policy.safetensors"
    saved = policy(section(top_k=2, stack_size=2))
    assert save_policy(path, saved) == saved.weights.weight_hash
    loaded = load_policy(path, network=saved.network)
    assert loaded.weights.weight_hash == saved.weights.weight_hash
    assert "forecaster.mu.weight" in loaded.state
    assert all(np.array_equal(loaded.state[name], saved.state[name]) for name in saved.state)
    assert np.array_equal(loaded.aux["first.weight"], saved.aux["first.weight"])
    with pytest.raises(StoreError, match="top_k is 2, expected 1"):
        load_policy(path, network=section(top_k=1, stack_size=2))
    with pytest.raises(StoreError, match="kind is scenario, expected mlp"):
        load_policy(path, network=section(kind="mlp"))
    with pytest.raises(StoreError, match=r"first.weight is \(24, 108\), expected \(24, 54\)"):
        load_policy(path, network=section(top_k=2))
