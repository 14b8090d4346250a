"""Scores with known rewards and PnL, and episodes of a NumPy market, for the audit's tests."""

import numpy as np

from backtest.audit.policies import POLICIES
from backtest.audit.scores import Scores
from backtest.market.walk import walk_targets


def walk(tape, start, targets):
    """Run target positions through the NumPy market; a `Simulate`."""
    return walk_targets(tape, start, targets).result


def scores(reward, pnl=None, terms=None, noise=0.01, n=64):
    """Return Scores of n episodes whose means are those given by policy, 0 where none is.

    Episodes deviate from the mean by +-noise in turn; each policy is out of step with the last
    one, so that differences of two have an error.
    """
    swing = np.resize([1.0, -1.0], n)

    def rows(by_policy, size):
        phase = {name: np.roll(swing, i % 2) for i, name in enumerate(POLICIES)}
        return np.stack([by_policy.get(p, 0.0) + size * phase[p] for p in POLICIES])

    return Scores(
        reward=rows(reward, noise),
        components={},
        terms={name: rows(values, 0.0) for name, values in (terms or {"asym": reward}).items()},
        pnl=rows(pnl or {}, 1.0),
        ruined=np.zeros((len(POLICIES), n)),
    )
