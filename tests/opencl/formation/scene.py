"""A frozen scenario policy of the smallest size on a small market, for the stages of formation."""

from functools import cache

import numpy as np

from backtest.agent.checkpoint import Policy
from backtest.agent.scenario.network import ScenarioNetwork
from backtest.config import Config
from opencl.devices import select
from opencl.formation.actor import Actor, Ground
from opencl.rollout import Rollout
from opencl.training import shape
from tests.scenes import bars, params, tape
from tests.skills import BANKS, KEY, NAME, SCENARIO
from tests.study import configuration

START = 40
# Banks that learn from few rows: two confirmations of two residuals each make a skill.
FAST = (
    BANKS,
    "skills.bank.aggregate=2",
    "skills.bank.min_confirmations=2",
    "skills.bank.direction_threshold=0.1",
    "skills.evaluate_rounds=2",
    "skills.evaluate_episodes=8",
    "skills.evaluate_steps=16",
    "skills.alphas=[1.0,3.0]",
)


def config_of(*overrides: str) -> Config:
    """The network of `tests.skills`, so that one compilation serves all, and fast banks."""
    return configuration(*SCENARIO, *FAST, *overrides)


@cache
def network_of(config_text: str, seed: int) -> ScenarioNetwork:
    from backtest.config import Network

    result = ScenarioNetwork(
        Network.model_validate_json(config_text), 2.0, np.random.default_rng(seed)
    )
    result.forecaster.initialise(np.random.default_rng(seed + 100))
    return result


def policy_of(config: Config, seed: int = 0) -> Policy:
    return Policy(
        state=network_of(config.network.model_dump_json(), seed).numpy_state(),
        network=config.network,
        branches=config.learner.branches,
        v_max=2.0,
        center=np.zeros(42),
        scale=np.ones(42),
        base=0.0,
        seed=seed,
        config_hash="",
        epoch=0,
        update=0,
        steps=0,
        labels={},
    )


def actor_of(*overrides: str, seed: int = 0) -> Actor:
    config = config_of(*overrides)
    return Actor.of(config, policy_of(config, seed), NAME, KEY, select("cpu"))


def columns(n: int, seed: int = 0):
    """Closes float64[n] and states float32[n, 115]."""
    chance = np.random.default_rng(seed)
    close = 100 + chance.normal(0, 1, n).cumsum()
    return close, chance.standard_normal((n, 115)).astype(np.float32)


def ground_of(actor: Actor, close, states, **market) -> Ground:
    """Six bars a session."""
    at = tape(bars(close), params(**market), start=START)
    rollout = Rollout(actor.device, at, states, shape(actor.config))
    session = (11_000 + np.arange(len(close)) // 6).astype(np.int32)
    return Ground(rollout, states, session)
