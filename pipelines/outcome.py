"""What a run tells while it goes on, and what it leaves behind. Plain values, cheap to import."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Status = Literal["complete", "failed", "cancelled"]
FoldStatus = Literal["made", "kept", "skipped", "failed"]


@dataclass(frozen=True)
class Progress:
    """One event of a run.

    Attributes:
        share: of the whole run, done, in [0, 1].
        text: what is going on.
        kind: "step" (a job begins), "trial" (a line from a training run), "problem" (worth a line
            that stays: a failed check or fold, a cancellation).
    """

    share: float
    text: str
    kind: Literal["step", "trial", "problem"]


Tell = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Ignore progress."""
    del progress


@dataclass(frozen=True)
class FailedCheck:
    """An asset check that did not hold; a warning stops nothing."""

    asset: str
    name: str
    partition: str  # "" without one
    text: str
    warning: bool

    @property
    def line(self) -> str:
        """One line for people."""
        where = f" {self.partition}" if self.partition else ""
        return f"{'WARN' if self.warning else 'FAIL'} {self.asset}.{self.name}{where}: {self.text}"


@dataclass(frozen=True)
class FoldOutcome:
    """What became of one fold of one instrument.

    Attributes:
        instrument: its name.
        key: first day of its test window.
        status: "made" now; "kept", its result was there; "skipped", nothing to compute; "failed".
        reason: why it is skipped or failed.
        seconds: wall clock.
    """

    instrument: str
    key: str
    status: FoldStatus
    reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class RunOutcome:
    """What a run left behind.

    Attributes:
        run_id: of table run.
        study_id: the study.
        status: as recorded; "failed" when a fold failed or the reward audit refused the reward.
        folds: by instrument and time.
        checks: those that did not hold.
        store: the published DuckDB file; None when no fold was begun or the run was cancelled.
    """

    run_id: str
    study_id: str
    status: Status
    folds: tuple[FoldOutcome, ...]
    checks: tuple[FailedCheck, ...]
    store: Path | None

    @property
    def ok(self) -> bool:
        """Whether everything was made and no check failed."""
        return self.status == "complete" and all(check.warning for check in self.checks)
