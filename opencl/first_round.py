"""The first round of a training run, known again by its digest."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from backtest.agent.columns import host
from backtest.agent.experience import Experience
from backtest.agent.kinds import Weights
from opencl.collector import DeviceCollector


def digest(experience: Experience) -> str:
    """Return the SHA-256 (hex) of all decisions; rows after an end do not count."""
    alive, portfolio = host(experience.alive), host(experience.portfolio)
    total = hashlib.sha256(host(experience.start).tobytes())
    arrays = (
        alive,
        host(experience.action)[alive],
        host(experience.reward)[alive],
        host(experience.end)[alive],
        portfolio[:-1][alive],
        portfolio[1:][alive],
        host(experience.equity)[alive],
    )
    for array in arrays:
        total.update(array.tobytes())
    return total.hexdigest()


@dataclass
class FirstRound:
    """A collector that keeps the digest of its first round; None when a resumed run had it."""

    collector: DeviceCollector
    digest: str | None = None

    def collect(self, weights: Weights, round: int, epsilon: float) -> Experience:
        """Return one round's experience; see `backtest.agent.protocols.Collector`."""
        experience = self.collector.collect(weights, round, epsilon)
        if round == 0:
            self.digest = digest(experience)
        return experience
