"""The schedule: when a window ends, ingest again; the sensor `next_step` does the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import dagster as dg

from assets.partitions import INSTRUMENTS


def new_window(cron: str, instruments: Sequence[str]) -> dg.ScheduleDefinition:
    """Return the schedule that launches `ingest` for every instrument at each tick of the cron."""

    @dg.schedule(
        name="new_window",
        cron_schedule=cron,
        job_name="ingest",
        execution_timezone="UTC",
        description="Ingests every instrument when a window of the walk-forward ends.",
    )
    def tick(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest]:
        context.instance.add_dynamic_partitions(str(INSTRUMENTS.name), list(instruments))
        moment = context.scheduled_execution_time.strftime("%Y-%m-%dT%H:%M")
        for name in instruments:
            yield dg.RunRequest(run_key=f"{name}|{moment}", partition_key=name)

    return tick
