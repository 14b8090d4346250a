"""What a rollout program is specialised to: the kind and the sizes of its networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from backtest.agent.kinds import Weights
from backtest.agent.scenario_weights import ScenarioWeights
from backtest.market.layout import BRANCHES, Array


@dataclass(frozen=True)
class Shape:
    """Sizes of the networks that one rollout plays; the last seven belong to kind scenario.

    Attributes:
        hidden: widths of the trunk's two layers.
        atoms: of a return distribution.
        branches: names of the learned ones.
        kind: of the network.
        scenarios: S.
        horizon: H, tokens of a scenario.
        latent: L, width of a token.
        stack_size: interpretations the trunk sees, the current one included.
        top_k: tokens a query attends to; 0 = all.
        slots: most skills a bank may hold; 0 compiles without a search.
    """

    hidden: tuple[int, int]
    atoms: int
    branches: tuple[str, ...]
    kind: Literal["mlp", "scenario"] = "mlp"
    scenarios: int = 0
    horizon: int = 0
    latent: int = 0
    stack_size: int = 1
    top_k: int = 0
    slots: int = 0

    @property
    def learned(self) -> tuple[str, ...]:
        """Learned branches in the order of an action."""
        return tuple(name for name in BRANCHES if name in self.branches)

    @property
    def heads(self) -> Array:
        """Rows of the 13 action heads that belong to learned branches, int[n]."""
        first = dict(zip(BRANCHES, np.cumsum([0, *BRANCHES.values()]), strict=False))
        spans = [np.arange(first[name], first[name] + BRANCHES[name]) for name in self.learned]
        return np.concatenate(spans)

    @property
    def task_dim(self) -> int:
        """Width of the task context and of an interpretation, 3*S*L."""
        return 3 * self.scenarios * self.latent

    @property
    def step_dim(self) -> int:
        """Width of the step context, S*H*L."""
        return self.scenarios * self.horizon * self.latent

    def check(self, policies: Sequence[Weights]) -> None:
        """Refuse policies of another shape.

        Raises:
            ValueError: names both shapes.
        """
        wanted = _sizes(self)
        for policy in policies:
            found = _sizes(policy)
            if found != wanted:
                raise ValueError(
                    f"a policy of {_told(found)} in a rollout of {_told(wanted)}; a rollout plays "
                    "policies of one shape"
                )


def _sizes(given: Shape | Weights) -> tuple[object, ...]:
    if isinstance(given, ScenarioWeights) or (isinstance(given, Shape) and given.scenarios):
        sizes = (given.scenarios, given.horizon, given.latent, given.stack_size, given.top_k)
        return (given.hidden, given.atoms, *sizes)
    return given.hidden, given.atoms


def _told(sizes: tuple[object, ...]) -> str:
    names = ("hidden", "atoms", "scenarios", "horizon", "latent", "stack_size", "top_k")
    return ", ".join(f"{name} {size}" for name, size in zip(names, sizes, strict=False))
