"""Dagster runs in this process: one job, one partition, on a persistent instance."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

import dagster as dg
from dagster._core.errors import (
    DagsterAssetCheckFailedError,
    DagsterExecutionInterruptedError,
)

from assets.partitions import partition, partitions
from assets.resources import RUN_TAG
from pipelines.build import definitions
from pipelines.home import Frozen
from pipelines.interrupts import Interrupted
from pipelines.outcome import FailedCheck
from pipelines.runner import Runner
from pipelines.sensors import RANGE

# Everything is in the UI; the terminal is the command line's.
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


class Launcher:
    """Launches the jobs of one experiment."""

    def __init__(
        self,
        instance: dg.DagsterInstance,
        experiment: Frozen,
        trials: Runner,
        run_id: str,
        interrupted: Interrupted,
    ) -> None:
        """Build the definitions; see `reload`."""
        self._instance, self._experiment, self._trials = instance, experiment, trials
        self._interrupted = interrupted
        self._tags = {RUN_TAG: run_id}
        self.reload()

    def reload(self) -> None:
        """Build the definitions again: the bars decide where folds begin."""
        plan = partitions(self._experiment.config, self._experiment.lake)
        self._definitions = definitions(self._experiment, self._trials, plan)
        self.fold_keys = frozenset(plan.fold_keys())

    def ingest(self, instrument: str) -> list[FailedCheck]:
        """Materialise raw_bars, bars and reward_audit of an instrument."""
        return self._launch("ingest", instrument)

    def features(self, instrument: str, first: str, last: str) -> list[FailedCheck]:
        """Materialise the windows from `first` to `last` as one run."""
        ends = (str(partition(instrument, key)) for key in (first, last))
        return self._launch("compute_features", None, dict(zip(RANGE, ends, strict=True)))

    def new_fold(self, instrument: str, key: str) -> list[FailedCheck]:
        """Materialise experience, policy, skill_bank and fold_result of a fold."""
        return self._launch("new_fold", partition(instrument, key))

    def walk_forward(self) -> list[FailedCheck]:
        """Publish all folds and write the report."""
        return self._launch("publish", None)

    def seen(self, instrument: str, key: str) -> bool:
        """Return whether this home has materialised the fold before."""
        known = self._instance.get_materialized_partitions(dg.AssetKey("fold_result"))
        return str(partition(instrument, key)) in known

    def _launch(
        self, job: str, key: str | None, tags: Mapping[str, str] | None = None
    ) -> list[FailedCheck]:
        """Run a job and return the checks that failed.

        Raises:
            KeyboardInterrupt: Ctrl-C, before the run or within it.
            Exception: what the step raised.
        """
        if self._interrupted():
            raise KeyboardInterrupt
        run_id = str(uuid4())
        try:
            self._definitions.resolve_job_def(job).execute_in_process(
                run_config=QUIET,
                instance=self._instance,
                partition_key=key,
                run_id=run_id,
                tags={**self._tags, **(tags or {})},
            )
        except DagsterAssetCheckFailedError:
            pass  # what was made stands; the checks are read below
        except DagsterExecutionInterruptedError:
            raise KeyboardInterrupt from None
        if self._interrupted():  # Dagster may not have noticed
            raise KeyboardInterrupt
        return self._failed(run_id, key or "")

    def _failed(self, run_id: str, key: str) -> list[FailedCheck]:
        """Return the checks of a run that did not hold."""
        kind = dg.DagsterEventType.ASSET_CHECK_EVALUATION
        found = []
        for entry in self._instance.all_logs(run_id, of_type=kind):
            seen = entry.get_dagster_event().asset_check_evaluation_data
            if not seen.passed:
                found.append(
                    FailedCheck(
                        asset=seen.asset_key.to_user_string(),
                        name=seen.check_name,
                        partition=seen.partition or key,
                        text=seen.description or "",
                        warning=seen.severity == dg.AssetCheckSeverity.WARN,
                    )
                )
        return found
