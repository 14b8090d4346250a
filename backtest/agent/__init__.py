"""The policy: network, replay, learner, checkpoints.

Importing this package, or `train_fold` from it, does not import torch; calling it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backtest.agent.plan import Plan
    from backtest.agent.protocols import Collector, Evaluator
    from backtest.agent.result import Trained


def train_fold(plan: Plan, collector: Collector, evaluator: Evaluator) -> Trained:
    """Train one policy on one fold's train rows; see `backtest.agent.train.train_fold`."""
    from backtest.agent.train import train_fold as train

    return train(plan, collector, evaluator)
