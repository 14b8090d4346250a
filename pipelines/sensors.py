"""What follows a run in the UI: ingest -> compute_features -> new_fold -> publish; and failures.

Runs of `skillwalk run` chain their steps themselves; the sensors leave them alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg

from assets.partitions import INSTRUMENT, partition
from assets.resources import RUN_TAG, ExperimentResource, run_row
from backtest.experiment import Experiment
from backtest.store import record_run
from pipelines.pending import finished, record_failure

CHAIN = ("ingest", "compute_features", "new_fold")
# How Dagster writes a run over several partitions.
RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
UNFINISHED = (
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
)


def sensors(
    experiment: ExperimentResource, jobs: list[dg.UnresolvedAssetJobDefinition]
) -> list[dg.SensorDefinition]:
    """Return both sensors."""
    by_name = {job.name: job for job in jobs}

    @dg.run_status_sensor(
        name="next_step",
        run_status=dg.DagsterRunStatus.SUCCESS,
        monitored_jobs=[by_name[name] for name in CHAIN],
        request_jobs=[by_name[name] for name in (*CHAIN[1:], "publish")],
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=10,
        description="After ingest come features, then every complete fold, then publication.",
    )
    def next_step(
        context: dg.RunStatusSensorContext,
    ) -> Iterator[dg.RunRequest | dg.SkipReason]:
        run = context.dagster_run
        if RUN_TAG in run.tags:
            yield dg.SkipReason("`skillwalk run` goes on by itself")
        elif run.job_name == "ingest":
            yield window_request(experiment.open(), run.tags["dagster/partition"])
        elif run.job_name == "compute_features":
            yield from fold_requests(experiment.open(), instrument_of(run))
        else:
            yield publication(context.instance, run)

    @dg.run_failure_sensor(
        name="failed_fold",
        monitored_jobs=[by_name["new_fold"]],
        request_job=by_name["publish"],
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Records a fold that failed; the others are published all the same.",
    )
    def failed_fold(
        context: dg.RunFailureSensorContext,
    ) -> Iterator[dg.RunRequest | dg.SkipReason]:
        run = context.dagster_run
        if RUN_TAG in run.tags:
            yield dg.SkipReason("`skillwalk run` has recorded it")
            return
        opened = experiment.open()
        key = run.tags["dagster/partition/fold"]
        reason = str(context.failure_event.message or "failed")
        name = instrument_of(run)
        record_failure(opened, name, opened.fold(name, key), run.run_id, reason)
        row = run_row(opened, run.run_id, f"dagster job {run.job_name}")
        record_run(opened.lake, {**row, "status": "failed"})
        yield publication(context.instance, run)

    return [next_step, failed_fold]


def instrument_of(run: dg.DagsterRun) -> str:
    """Return the instrument of a run over fold or window partitions, or a range of them."""
    tags = run.tags
    return tags.get(f"dagster/partition/{INSTRUMENT}") or tags[RANGE[0]].partition("|")[2]


def window_request(experiment: Experiment, instrument: str) -> dg.RunRequest | dg.SkipReason:
    """Return the run that computes every window of an instrument."""
    keys = [key for key, window in experiment.windows(instrument).items() if window]
    if not keys:
        return dg.SkipReason(f"{instrument} has no bars")
    ends = (str(partition(instrument, key)) for key in (keys[0], keys[-1]))
    bars = experiment.bars(instrument).content_hash[:12]
    return dg.RunRequest(
        run_key=f"{experiment.study_id}|{instrument}|{bars}",
        job_name="compute_features",
        tags=dict(zip(RANGE, ends, strict=True)),
    )


def fold_requests(
    experiment: Experiment, instrument: str
) -> Iterator[dg.RunRequest | dg.SkipReason]:
    """Yield a run for every complete fold that has no result yet."""
    asked = 0
    for fold in experiment.folds(instrument):
        if fold.status != "complete":
            continue
        if not finished(experiment, instrument, fold):
            asked += 1
            yield dg.RunRequest(
                run_key=f"{fold.key}|{instrument}|{experiment.fold_id(instrument, fold)}",
                job_name="new_fold",
                partition_key=partition(instrument, fold.key),
            )
    if not asked:
        yield dg.SkipReason(f"{instrument}: every complete fold has its result")


def publication(instance: dg.DagsterInstance, run: dg.DagsterRun) -> dg.RunRequest | dg.SkipReason:
    """Return the publication that follows the last fold under way."""
    busy = instance.get_runs_count(dg.RunsFilter(job_name="new_fold", statuses=list(UNFINISHED)))
    if busy:
        return dg.SkipReason(f"{busy} folds are still under way")
    return dg.RunRequest(run_key=run.run_id, job_name="publish")
