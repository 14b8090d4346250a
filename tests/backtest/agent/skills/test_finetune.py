"""Training on: what it spends, what it changes, and that it can be stopped."""

import numpy as np
import pytest

from backtest.agent.checkpoint import Policy
from backtest.agent.result import StoppedError
from backtest.agent.skills.finetune import budget, train_on
from backtest.config import Network
from backtest.errors import DataError
from tests.backtest.agent.skilled import network
from tests.backtest.agent.toy import ToyCollector, plan, settings

SIZES = Network(kind="scenario", scenarios=2, horizon=3, latent=4, hidden=(16, 16), atoms=11)
LEARNER = settings(updates=24, epochs=3, batch=16, envs=4, episode_steps=64, epsilon_end=0.25)
NET = network(sizes=SIZES)
POLICY = Policy(
    state=NET.numpy_state(),
    network=SIZES,
    branches=("direction",),
    v_max=2.5,
    center=np.zeros(42),
    scale=np.ones(42),
    base=0.0,
    seed=4,
    config_hash="",
    epoch=2,
    update=100,
    steps=1000,
    labels={},
)


def plan_of(**changes):
    parts = NET.forecaster.numpy_state()
    return plan(**({"network": SIZES, "learner": LEARNER, "forecaster": parts} | changes))


def tuned(updates, collector=None, log=None, **changes):
    collector = collector or ToyCollector(LEARNER)
    return train_on(POLICY, plan_of(**changes), collector, updates, 3, log)


def test_the_same_budget_gives_the_same_bits():
    one, two, other = tuned(10), tuned(10), tuned(10, seed=1)
    assert one.weights.weight_hash == two.weights.weight_hash != other.weights.weight_hash


def test_weights_move_and_the_forecaster_stays():
    found = tuned(10)
    moved = {
        name for name, array in found.state.items() if not np.array_equal(array, POLICY.state[name])
    }
    frozen = {name for name in POLICY.state if name.startswith("forecaster.")}
    assert moved and not moved & frozen
    assert {"query.position.weight", "latent.weight", "hidden.weight", "value.bias"} <= moved
    assert found.v_max == POLICY.v_max and found.network == SIZES
    assert POLICY.state["hidden.weight"].tobytes() == NET.numpy_state()["hidden.weight"].tobytes()


@pytest.mark.parametrize(("updates", "rounds"), [(1, 1), (8, 1), (9, 2), (20, 3), (40, 5)])
def test_updates_and_fresh_rounds_as_in_training(updates, rounds):
    """Training takes 24 updates in 3 rounds, so a round serves 8, beyond 24 as well."""
    collector, done = ToyCollector(LEARNER), []
    found = tuned(updates, collector, done.append)
    assert found.update == 100 + updates
    assert found.steps == 1000 + rounds * 4 * 64
    # numbers of its own, and the least exploration of training
    assert [call[:2] for call in collector.calls] == [(3 + i, 0.25) for i in range(rounds)]
    assert len(done) == rounds and done[-1] == updates
    # the first round is played by the policy as it was
    assert collector.calls[0][2] == POLICY.weights.weight_hash


def test_it_stops_between_blocks():
    asked = iter([False, True])
    with pytest.raises(StoppedError, match="seed 0: stopped while training on"):
        tuned(24, stop=lambda: next(asked))


def test_weights_that_are_not_finite_are_an_error():
    wild = LEARNER.model_copy(update={"learning_rate": 1e38})
    with pytest.raises(DataError, match="training on diverged after 4 updates"):
        tuned(4, learner=wild)


def test_the_budget_is_the_rows_that_the_banks_took_backward():
    assert budget(1000, 256) == 4  # 3.9 minibatches
    assert budget(1024, 256) == 4 and budget(1025, 256) == 5
    assert budget(0, 256) == 1
