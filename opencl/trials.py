"""Trials: what a runner is asked to do, and how a trial reports from whichever process it is in.

`train` makes a policy, `form` its skill banks.

A trial may run in another process. Its runner connects it there: a stop flag to ask, a line to
tell. Unconnected it runs to the end in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal, Protocol, cast

from backtest.lake import Lake, locked
from backtest.runner import Result, Spec, TrialRunner
from opencl.seed_training import train_seeds
from opencl.training import TrainSpec

Stage = Literal["train", "form"]


@dataclass(frozen=True)
class Report:
    """One line from a trial."""

    instrument: str
    fold_key: str
    seed: int
    text: str
    share: float  # of this trial, done
    stage: Stage = "train"


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
    """Train one seed of one fold; see `opencl.seed_training.train_seeds`.

    Whoever comes second, in whichever process, waits and finds the policy made.
    """
    (summary,) = train_together([spec])
    return summary


def train_together(specs: Sequence[TrainSpec]) -> list[Path]:
    """Train seeds of one fold side by side; each becomes what `train` makes of it."""
    with ExitStack() as held:
        for spec in specs:
            held.enter_context(_sole_maker(spec, Lake.policies))
        return train_seeds(specs, stopped, [_log(spec, "train") for spec in specs])


def together(fn: Callable[[Spec], Result], specs: Iterable[Spec]) -> Iterator[Result]:
    """Run trials in this process, those of one fold side by side where that pays.

    Yields:
        Results in the order of the specifications.
    """
    if fn is not train:
        yield from map(fn, specs)
        return
    for _, group in groupby(specs, key=_fold_of):
        yield from cast("list[Result]", train_together(cast("list[TrainSpec]", list(group))))


def _fold_of(spec: object) -> tuple[object, ...]:
    """Return what seeds that train side by side have in common."""
    assert isinstance(spec, TrainSpec)
    return spec.config, spec.lake, spec.instrument, spec.fold_key, spec.run_id


def form(spec: TrainSpec) -> Path:
    """Form the skill banks of one seed of one fold; see `opencl.skills.form_skills`.

    A policy that is not there yet is trained first, or waited for. Whoever comes second finds
    banks and summary made.
    """
    from opencl.skills import form_skills

    train(spec)
    with _sole_maker(spec, Lake.skills):
        return form_skills(spec, stop=stopped, log=_log(spec, "form"))


@contextmanager
def _sole_maker(spec: TrainSpec, of: Callable[[Lake, str, str, str, str], Path]) -> Iterator[None]:
    """Hold the lock of a seed in a folder of its fold."""
    lake, study_id = spec.experiment.lake, spec.experiment.study_id
    folder = of(lake, study_id, spec.instrument, spec.fold_key, spec.fold_id)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / f".seed_{spec.seed}.lock"):
        yield


def _log(spec: TrainSpec, stage: Stage) -> Callable[[str, float], None]:
    """Return what passes on the lines of a trial."""

    def log(text: str, share: float) -> None:
        tell(Report(spec.instrument, spec.fold_key, spec.seed, text, share, stage))

    return log
