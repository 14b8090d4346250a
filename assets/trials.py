"""Trials of all seeds of a fold: run, read, and heard in the log of their step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from assets.resources import FoldStep
from backtest.lake import read_json
from opencl.trials import Report, Runner, Stage, form, train

WORK = {"train": train, "form": form}
MOST_LINES = 14  # in the step's log while the seeds run


def summaries_by_seed(
    step: FoldStep, stage: Stage, runner: Runner, log: Callable[[str], object]
) -> dict[int, dict[str, Any]]:
    """Run a stage of every seed, its progress in the log; return the summaries it wrote."""
    seeds = step.experiment.config.study.seeds
    with runner.listening(thinned(step, stage, log)):
        paths = list(runner.imap(WORK[stage], [step.spec(seed) for seed in seeds]))
    return dict(zip(seeds, map(read_json, paths), strict=True))


def thinned(step: FoldStep, stage: Stage, log: Callable[[str], object]) -> Callable[[Report], None]:
    """Return what passes at most `MOST_LINES` reports of this fold to a log, evenly by progress."""
    done = dict.fromkeys(step.experiment.config.study.seeds, 0.0)
    lines = 0

    def tell(report: Report) -> None:
        nonlocal lines
        here = step.instrument, step.fold.key, stage
        if (report.instrument, report.fold_key, report.stage) != here:
            return
        done[report.seed] = report.share
        if sum(done.values()) / len(done) * MOST_LINES >= lines:
            lines += 1
            log(report.text)

    return tell
