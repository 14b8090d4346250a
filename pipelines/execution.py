"""`skillwalk run`: the assets of a study in this process, on the lake's own Dagster home.

One run a job and partition, in the order ingest, features, new_fold, walk_forward, so that the UI
shows what was done. What has a result is left alone; a killed run goes on where it stopped.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backtest import identity
from backtest.experiment import Experiment
from backtest.lake import Lake, locked
from backtest.publication import publish
from backtest.splits import Fold
from backtest.store import record_run
from pipelines import home
from pipelines.interrupts import noted
from pipelines.outcome import (
    FailedCheck,
    FoldOutcome,
    FoldStatus,
    Progress,
    RunOutcome,
    Status,
    Tell,
    silent,
)
from pipelines.pending import finished, record_failure, stale_windows
from pipelines.runner import Runner, runner

if TYPE_CHECKING:
    from opencl.training import TrainSpec
    from opencl.trials import Report, Stage
    from pipelines.launch import Launcher

# Shares of the whole run, for the progress bar: bars, features, folds, publication.
INGESTED, COMPUTED, EVALUATED = 0.04, 0.06, 0.97


def run_study(
    experiment: Experiment,
    *,
    source: str,
    overrides: Sequence[str] = (),
    command: str = "skillwalk run",
    tell: Tell = silent,
    force: bool = False,
    accept_reward: bool = False,
) -> RunOutcome:
    """Materialise every asset of a study.

    A fold that fails is recorded, told and passed over; Ctrl-C ends the run as cancelled with
    every finished fold in place. From either the next run goes on.

    Args:
        experiment: configuration and lake.
        source: where the configuration comes from, for people.
        overrides: what was already applied to it, for people.
        command: for table run.
        tell: receives progress, from other threads too.
        force: make every fold again.
        accept_reward: train although the reward audit failed; else the run ends there.

    Raises:
        BacktestError: bars, folds or device that cannot be used; no fold was begun.
    """
    from assets.resources import begin, run_row
    from pipelines.build import experiment_resource
    from pipelines.launch import Launcher

    lake = Lake(experiment.lake.root.resolve())
    frozen = home.Frozen(experiment.config, lake, source, tuple(overrides))
    folder = home.prepare(frozen)
    run_id = identity.run_id()
    study = Study(experiment_resource(frozen).open(), run_id, tell, force, accept_reward)
    with (
        noted() as interrupted,
        home.alive(folder, run_id),
        home.instance(folder, experiment.config.study.instruments) as instance,
        runner(experiment.config.runtime) as trials,
        trials.listening(study.hear),
    ):
        home.close_killed(instance, lake, home.killed(folder))
        begin(study.experiment, run_id)
        row = run_row(study.experiment, run_id, command)
        record_run(lake, row)
        try:
            launcher = Launcher(instance, frozen, trials, run_id, interrupted)
            return study.run(launcher, trials, row)
        except BaseException:
            end(lake, row, "failed")
            raise


def end(lake: Lake, row: Mapping[str, Any], status: Status) -> None:
    """Record how an execution ended."""
    record_run(lake, {**row, "finished": datetime.now(UTC), "status": status})


@dataclass
class Study:
    """One execution under way."""

    experiment: Experiment
    run_id: str
    tell: Tell
    force: bool
    accept_reward: bool
    share: float = 0.0  # of the whole run, without the folds
    # done of each, by instrument, fold, seed and stage
    trials: dict[tuple[str, str, int, str], float] = field(default_factory=dict)
    folds: list[FoldOutcome] = field(default_factory=list)
    checks: list[FailedCheck] = field(default_factory=list)

    def run(self, launcher: Launcher, trials: Runner, row: Mapping[str, Any]) -> RunOutcome:
        """Run all steps; see `run_study`."""
        lake, store = self.experiment.lake, None
        try:
            status = self._train(launcher, trials)
            # before publication, so that the store says how the run ended
            end(lake, row, status)
            if self.folds:
                self._say("publish", EVALUATED)
                self._note(launcher.walk_forward())
                store = lake.store
            else:
                publish(lake)  # the audit that ended the run
            self._say(status, 1.0)
        except KeyboardInterrupt:
            status = "cancelled"
            end(lake, row, status)
            self._problem("cancelled; run again to go on")
        return RunOutcome(
            run_id=self.run_id,
            study_id=self.experiment.study_id,
            status=status,
            folds=tuple(sorted(self.folds, key=lambda fold: (fold.instrument, fold.key))),
            checks=tuple(self.checks),
            store=store,
        )

    def hear(self, report: Report) -> None:
        """Pass on what a training run reports."""
        key = report.instrument, report.fold_key, report.seed, report.stage
        self.trials[key] = report.share
        text = f"{report.instrument} {report.fold_key} {report.text}"
        self.tell(Progress(self._done(), text, "trial"))

    def _train(self, launcher: Launcher, trials: Runner) -> Status:
        """Run everything before publication."""
        names = self.experiment.config.study.instruments
        for name in names:
            self._say(f"ingest {name} and audit the reward", self.share)
            failed = self._note(launcher.ingest(name))
            if self.accept_reward:
                failed = [check for check in failed if check.asset != "reward_audit"]
            if failed:
                self._problem("nothing was trained: a check failed")
                return "failed"
        launcher.reload()
        for name in names:
            self._say(f"features of {name}", INGESTED)
            stale = stale_windows(self.experiment, name)
            if stale and self._note(launcher.features(name, stale[0], stale[-1])):
                return "failed"
        self.share = COMPUTED
        self._all_folds(launcher, trials)
        return "failed" if any(fold.status == "failed" for fold in self.folds) else "complete"

    def _all_folds(self, launcher: Launcher, trials: Runner) -> None:
        """Make the folds that have no result, instrument by instrument in the order of time."""
        todo = []
        for name in self.experiment.config.study.instruments:
            for fold in self.experiment.folds(name):
                # by the clock, the last windows of the data may not have begun
                if fold.key in launcher.fold_keys and not self._kept(launcher, name, fold):
                    todo.append((name, fold))
        self._ahead([fold for fold in todo if fold[1].status != "skipped"], trials)
        for name, fold in todo:
            self._fold(launcher, name, fold)

    def _ahead(self, todo: Sequence[tuple[str, Fold]], trials: Runner) -> None:
        """Begin the trials of all folds; banks a few folds behind the policies that they wait for.

        Then no worker stands still: by the time it comes to a fold's banks, others have taken up
        as many later policies as there are workers.
        """
        if not todo:
            return
        from opencl.trials import form, train

        config = self.experiment.config
        specs = [[self._spec(*fold, seed) for seed in config.study.seeds] for fold in todo]
        behind = -(-config.runtime.workers // len(config.study.seeds))
        stages: dict[Stage, Callable[[TrainSpec], Path]] = {"train": train}
        if config.skills.banks:
            stages["form"] = form
        for place in range(len(specs) + behind):
            for (stage, trial), at in zip(stages.items(), (place, place - behind), strict=False):
                if 0 <= at < len(specs):
                    keys = ((s.instrument, s.fold_key, s.seed, stage) for s in specs[at])
                    self.trials |= dict.fromkeys(keys, 0.0)
                    trials.ahead(trial, specs[at])

    def _kept(self, launcher: Launcher, name: str, fold: Fold) -> bool:
        """Note a fold with nothing to do; with `force` remove what it was made of."""
        if fold.status == "skipped":
            if not launcher.seen(name, fold.key):
                return False  # shown in the UI once
            self.folds.append(FoldOutcome(name, fold.key, "skipped", fold.reason))
            return True
        if self.force:
            fold_id = self.experiment.fold_id(name, fold)
            place = (self.experiment.study_id, name, fold.key, fold_id)
            lake = self.experiment.lake
            for folder in (lake.experience, lake.policies, lake.skills):
                shutil.rmtree(folder(*place), ignore_errors=True)
            return False
        if finished(self.experiment, name, fold):
            self.folds.append(FoldOutcome(name, fold.key, "kept"))
            return True
        return False

    def _fold(self, launcher: Launcher, name: str, fold: Fold) -> None:
        """Make one fold; what it raises is recorded, and the next one has its turn.

        Of two executions of one study, the second waits and keeps what the first has made.
        """
        clock = time.perf_counter()
        self._say(f"{name} fold {fold.key}", self.share)
        reason = fold.reason
        status: FoldStatus = "skipped" if fold.status == "skipped" else "made"
        with self._sole_maker(name, fold):
            if status == "made" and not self.force and finished(self.experiment, name, fold):
                status = "kept"
            else:
                try:
                    failed = self._note(launcher.new_fold(name, fold.key))
                    if status == "made" and not finished(self.experiment, name, fold):
                        lines = [check.line for check in failed]
                        status, reason = "failed", "; ".join(lines) or "no result was written"
                except Exception as error:
                    status, reason = "failed", f"{type(error).__name__}: {error}"
            if status == "failed":
                record_failure(self.experiment, name, fold, self.run_id, reason)
                self._problem(f"{name} fold {fold.key} failed: {reason}")
        for trial in self.trials:
            if trial[:2] == (name, fold.key):
                self.trials[trial] = 1.0
        seconds = time.perf_counter() - clock
        self.folds.append(FoldOutcome(name, fold.key, status, reason, seconds))

    def _sole_maker(self, name: str, fold: Fold) -> AbstractContextManager[None]:
        """Hold the lock of a fold, whichever process makes it."""
        lake = self.experiment.lake
        folder = lake.dagster_home / "folds"
        folder.mkdir(exist_ok=True)
        return locked(folder / f"{self.experiment.fold_id(name, fold)}.lock")

    def _spec(self, name: str, fold: Fold, seed: int) -> TrainSpec:
        """Return the trial that the steps policy and skill_bank will ask for."""
        from opencl.training import TrainSpec

        lake = self.experiment.lake.root
        return TrainSpec(self.experiment.config, lake, name, fold.key, seed, self.run_id)

    def _note(self, failed: list[FailedCheck]) -> list[FailedCheck]:
        """Keep and tell failed checks; return those that are no warnings."""
        self.checks += failed
        for check in failed:
            self._problem(check.line)
        return [check for check in failed if not check.warning]

    def _done(self) -> float:
        """Return the share of the whole run that is done."""
        trained = sum(self.trials.values()) / len(self.trials) if self.trials else 0.0
        return max(self.share, COMPUTED + (EVALUATED - COMPUTED) * trained if trained else 0.0)

    def _say(self, text: str, share: float) -> None:
        self.share = max(self.share, share)
        self.tell(Progress(self._done(), text, "step"))

    def _problem(self, text: str) -> None:
        self.tell(Progress(self._done(), text, "problem"))
