"""What changes with the number of updates: rounds, exploration, importance weights, stopping."""

from __future__ import annotations

from backtest.config import Learner


def round_updates(settings: Learner, epoch: int) -> tuple[int, int]:
    """Return the half-open range of updates of a round; the rounds tile [0, updates)."""
    return (
        settings.updates * epoch // settings.epochs,
        settings.updates * (epoch + 1) // settings.epochs,
    )


def epsilon(settings: Learner, update: int) -> float:
    """Return the exploration probability per branch: linear, then flat at epsilon_end.

    A round explores with the value at its first update.
    """
    progress = min(1.0, update / (settings.epsilon_decay * settings.updates))
    return settings.epsilon_start + progress * (settings.epsilon_end - settings.epsilon_start)


def round_epsilon(settings: Learner, epoch: int) -> float:
    """Return a round's exploration; the first round always explores fully."""
    if epoch == 0:
        return 1.0
    return epsilon(settings, round_updates(settings, epoch)[0])


def beta(settings: Learner, update: int) -> float:
    """Return the exponent of the importance weights, per_beta rising to 1 over the updates."""
    return settings.per_beta + (1.0 - settings.per_beta) * update / settings.updates


def better(sharpe: float | None, best: float | None) -> bool:
    """Tell whether a validation Sharpe beats the best so far; None counts as -inf, ties do not."""
    return sharpe is not None and (best is None or sharpe > best)


def exhausted(settings: Learner, epoch: int, best_epoch: int) -> bool:
    """Tell whether `patience` epochs passed since the best one."""
    return epoch - best_epoch >= settings.patience
