"""Training on: the rival of every skill bank spends the same budget on the network itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from backtest.agent import streams
from backtest.agent.checkpoint import Policy
from backtest.agent.plan import Plan
from backtest.agent.protocols import Collector
from backtest.agent.result import StoppedError
from backtest.agent.training_state import begin
from backtest.agent.updates import Updates
from backtest.errors import DataError


def train_on(
    policy: Policy,
    plan: Plan,
    collector: Collector,
    updates: int,
    first_round: int,
    log: Callable[[int], None] | None = None,
) -> Policy:
    """Continue the training of a policy on fresh experience; optimiser and target start anew.

    Args:
        policy: where it starts.
        plan: rows, settings and seed; `bar_part` are the rows of the collector.
        collector: plays on those rows.
        updates: gradient steps, >= 1. Experience is collected as often per update as in training.
        first_round: number of the first collection, so that its random numbers are fresh.
        log: receives the updates done after each collection.

    Raises:
        StoppedError: the plan's stop flag was raised.
        DataError: a loss was not finite.
    """
    settings = plan.learner
    start = begin(plan)
    learner, replay = start.learner, start.replay
    learner.online.load_numpy(policy.state)
    learner.set_range(policy.v_max)
    learner.copy_target()
    replay.scale = policy.v_max
    each = -(-settings.updates // settings.epochs)
    rounds = -(-updates // each)
    steps = 0

    def check_stop() -> None:
        if plan.stop():
            raise StoppedError(
                f"seed {plan.seed}: stopped while training on; run again, nothing of it is kept"
            )

    updating = Updates(learner, replay, plan.seed, plan.stream, streams.Stage.FINETUNE)
    for index in range(rounds):
        experience = collector.collect(
            learner.online.weights(learner.v_max), first_round + index, settings.epsilon_end
        )
        experience.check(plan.first_bar, plan.stop_bar)
        replay.insert(experience, settings.n_step, settings.gamma, index)
        steps += experience.steps
        stop = updates * (index + 1) // rounds
        for _ in updating.take(learner.updates, stop, lambda _: 1.0, check_stop):
            pass  # what the figures would tell shows in the parameters as well
        if not learner.finite:
            raise DataError(
                f"seed {plan.seed}: training on diverged after {learner.updates} updates; lower "
                "learner.learning_rate or learner.gradient_clip"
            )
        if log is not None:
            log(learner.updates)
    return replace(
        policy,
        state=learner.online.numpy_state(),
        update=policy.update + learner.updates,
        steps=policy.steps + steps,
    )


def budget(gradient_rows: int, batch: int) -> int:
    """Return the updates that take as many rows backward as the banks' stages did, at least 1."""
    return max(1, -(-gradient_rows // batch))
