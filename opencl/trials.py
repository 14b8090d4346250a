"""Trials: what a runner is asked to do, and how a trial reports from whichever process it is in.

A trial may run in another process. Its runner connects it there: a stop flag to ask, a line to
tell. Unconnected it runs to the end in silence.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from backtest.lake import locked
from backtest.runner import TrialRunner
from opencl.training import TrainSpec, train_seed


@dataclass(frozen=True)
class Report:
    """One line from a trial."""

    instrument: str
    fold_key: str
    seed: int
    text: str
    share: float  # of this trial, done


Tell = Callable[[Report], None]


class Runner(TrialRunner, Protocol):
    """A runner whose trials report while they run."""

    def listening(self, tell: Tell) -> AbstractContextManager[None]:
        """Pass on every report that arrives within the context."""
        ...


@dataclass
class _Link:
    stop: Callable[[], bool]
    tell: Tell


def _go_on() -> bool:
    return False


def _silence(report: Report) -> None:
    del report


_link = _Link(_go_on, _silence)


def connect(stop: Callable[[], bool], tell: Tell) -> None:
    """Connect the trials of this process with its runner."""
    _link.stop, _link.tell = stop, tell


def disconnect() -> None:
    """Forget the runner of this process."""
    connect(_go_on, _silence)


def stopped() -> bool:
    """Return whether the runner wants its trials to end."""
    return _link.stop()


def tell(report: Report) -> None:
    """Pass a report to the runner."""
    _link.tell(report)


def train(spec: TrainSpec) -> Path:
    """Train one seed of one fold; see `opencl.training.train_seed`.

    Whoever comes second, in whichever process, waits and finds the policy made.
    """

    def log(text: str, share: float) -> None:
        tell(Report(spec.instrument, spec.fold_key, spec.seed, text, share))

    experiment = spec.experiment
    fold_id = experiment.fold_id(spec.instrument, experiment.fold(spec.instrument, spec.fold_key))
    folder = experiment.lake.policies(experiment.study_id, spec.instrument, spec.fold_key, fold_id)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / f".seed_{spec.seed}.lock"):
        return train_seed(spec, stop=stopped, log=log)
