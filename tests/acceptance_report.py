"""Tables of the acceptance of skills on bars, over all seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backtest.evaluation.intervals import Interval, mean_interval
from tests.acceptance import Outcome


@dataclass(frozen=True)
class Verdict:
    """All seeds of one variant."""

    variant: str
    delta: Interval  # t interval over seeds
    significant: int  # seeds whose own interval lies above zero
    adopted: int
    seeds: int


def verdicts(outcomes: Sequence[Outcome]) -> list[Verdict]:
    """Return one verdict a variant, in the order of the arms."""
    found = []
    for place, arm in enumerate(outcomes[0].arms):
        arms = [outcome.arms[place] for outcome in outcomes]
        found.append(
            Verdict(
                arm.variant,
                mean_interval(np.array([a.delta for a in arms])),
                sum(a.low is not None and a.low > 0 for a in arms),
                sum(a.adopted for a in arms),
                len(arms),
            )
        )
    return found


def random_means(outcomes: Sequence[Outcome]) -> np.ndarray:
    """Return the mean delta of the random banks of each seed, float64[seeds]."""
    return np.array([np.mean(outcome.random) for outcome in outcomes])


def report(outcomes: Sequence[Outcome]) -> str:
    """Return the tables as markdown."""
    lines = [
        "| seed | base | variant | alpha | skills | adopted | changed | delta a bar | 95 % |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for outcome in outcomes:
        for arm in outcome.arms:
            bounds = "" if arm.low is None else f"[{arm.low:+.4f}, {arm.high:+.4f}]"
            alpha = "" if arm.alpha is None else f"{arm.alpha:g}"
            adopted = "yes" if arm.adopted else "no"
            lines.append(
                f"| {outcome.seed} | {outcome.base:+.4f} | {arm.variant} | {alpha} | {arm.live} | "
                f"{adopted} | {arm.changed:,} | {arm.delta:+.4f} | {bounds} |"
            )
        lines.append(
            f"| {outcome.seed} | {outcome.base:+.4f} | random x {len(outcome.random)} | | | | | "
            f"{np.mean(outcome.random):+.4f} | |"
        )
    lines += ["", "| variant | mean delta a bar | 95 % over seeds | seeds above zero | adopted |"]
    lines += ["|---|---|---|---|---|"]
    for v in verdicts(outcomes):
        low, high = v.delta.low, v.delta.high
        bounds = "" if low is None or high is None else f"[{low:+.4f}, {high:+.4f}]"
        lines.append(
            f"| {v.variant} | {v.delta.value:+.4f} | {bounds} | {v.significant}/{v.seeds} | "
            f"{v.adopted}/{v.seeds} |"
        )
    noise = random_means(outcomes)
    error = noise.std(ddof=1) / np.sqrt(len(noise)) if len(noise) > 1 else float("nan")
    lines.append(f"| random directions | {noise.mean():+.4f} | standard error {error:.4f} | | |")
    return "\n".join(lines)
