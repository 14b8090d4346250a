"""A frozen policy and the bars it may play on: what every stage of skill formation works with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from backtest import rng
from backtest.agent.bank import Bank
from backtest.agent.checkpoint import Policy
from backtest.agent.experience import Experience
from backtest.agent.scenario_layout import step_dim, task_dim
from backtest.agent.scenario_weights import ScenarioWeights
from backtest.config import Config
from backtest.errors import ConfigError
from backtest.features.names import MARKET_DIM
from backtest.market.layout import Array, End
from opencl.devices import Device
from opencl.rollout import PolicySkills, Rollout, Trajectories

if TYPE_CHECKING:
    from backtest.agent.scenario.network import ScenarioNetwork
    from backtest.agent.skills.decisions import Decisions

BANKS = ("task", "step")  # in the order of `Trajectories.slots`


@dataclass(frozen=True)
class Ground:
    """Bars that a stage may play on.

    Attributes:
        rollout: holds their tape and no other row.
        states: float32[n, 115], the bars' part of the state.
        session: int32[n], session date of each bar.
    """

    rollout: Rollout
    states: Array
    session: Array

    @property
    def first(self) -> int:
        """Bar of the first decision."""
        return self.rollout.tape.start

    @property
    def steps(self) -> int:
        """Decisions from the first bar to the last that has a bar after it."""
        return len(self.states) - 1


@dataclass(frozen=True)
class Actor:
    """A frozen scenario policy, for a device and for torch.

    Attributes:
        key: uint32[2], of seed, instrument and fold.
        stream: hash32 of "instrument|fold key".
        torch_device: where gradients are taken.
    """

    config: Config
    policy: Policy
    weights: ScenarioWeights
    network: ScenarioNetwork
    key: Array
    stream: int
    device: Device
    torch_device: str

    @classmethod
    def of(
        cls,
        config: Config,
        policy: Policy,
        instrument: str,
        fold_key: str,
        device: Device,
        torch_device: str = "cpu",
    ) -> Actor:
        """Return the actor of a policy.

        Raises:
            ConfigError: the policy is no scenario network.
        """
        from backtest.agent.network import build
        from backtest.agent.scenario.network import ScenarioNetwork

        weights, network = policy.weights, build(policy.network)
        if not (isinstance(weights, ScenarioWeights) and isinstance(network, ScenarioNetwork)):
            raise ConfigError(
                f"skills extend the scenario network; this policy is a {policy.network.kind}: "
                'train it with network.kind = "scenario" or set skills.banks = []'
            )
        network.load_numpy(policy.state)
        network.set_range(policy.v_max)
        network.requires_grad_(False)
        return cls(
            config,
            policy,
            weights,
            network.to(torch_device),
            rng.key(policy.seed, instrument, fold_key),
            rng.hash32(f"{instrument}|{fold_key}"),
            device,
            torch_device,
        )

    def new_banks(self) -> dict[str, Bank]:
        """Return an empty bank for each name in skills.banks.

        Raises:
            ConfigError: keys of market features cannot be told from this network's step context.
        """
        section, sizes = self.config.skills.bank, self.policy.network
        parameters = section.model_dump(exclude={"slots"})
        slots = section.slots or sizes.scenarios
        dims = {"task": task_dim(sizes), "step": step_dim(sizes)}
        by_features = section.key == "features"
        if by_features and dims["step"] == MARKET_DIM:
            raise ConfigError(
                f'skills.bank.key = "features" beside a step context of {MARKET_DIM} values, too: '
                "change network.scenarios, horizon or latent"
            )
        return {
            name: Bank(
                slots,
                dims[name],
                key_dim=MARKET_DIM if by_features and name == "step" else None,
                **parameters,
            )
            for name in BANKS
            if name in self.config.skills.banks
        }

    def play(
        self,
        ground: Ground,
        start: Array,
        steps: int,
        skills: Sequence[PolicySkills | None],
        *,
        portfolio: bool = False,
        slots: bool = True,
    ) -> Trajectories:
        """Play greedily, the same episodes under each set of skills.

        Args:
            ground: the bars.
            start: int[E], bar of each episode's first decision.
            steps: decisions of each.
            skills: P sets; episodes lie set after set in the result.
            portfolio: return the portfolio states.
            slots: return what was retrieved.
        """
        return ground.rollout.run(
            [self.weights] * len(skills),
            np.repeat(start[None], len(skills), axis=0),
            steps,
            np.repeat(self.key[None], len(skills), axis=0),
            stage_round=int(rng.stream(rng.Stage.BANK, 0)),
            portfolio=portfolio,
            skills=skills,
            slots=slots,
        )

    def decisions(self, ground: Ground, experience: Experience) -> Decisions:
        """Return the decisions of an experience on these bars, ready for gradients."""
        from backtest.agent.skills.decisions import Decisions

        return Decisions(
            self.network,
            ground.states,
            ground.first,
            experience,
            self.config.learner,
            self.config.skills.bank.residual,
            self.torch_device,
        )


def pnl(out: Trajectories, capital: float) -> Array:
    """Return the net PnL of every step float64[steps, n], currency; 0 after an end."""
    gained = np.diff(out.equity.astype(np.float64), axis=0, prepend=capital)
    return np.where(out.end == End.DEAD, 0.0, gained)
