"""Definitions of one frozen experiment: assets, checks, jobs, schedule, sensors, resources."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg

from assets.graph import graph
from assets.partitions import partitions
from assets.resources import (
    DeviceResource,
    ExperimentResource,
    LakeResource,
    WarehouseResource,
)
from backtest.sections import Runtime
from pipelines.home import Frozen
from pipelines.jobs import jobs
from pipelines.runner import Runner, runner
from pipelines.schedules import new_window
from pipelines.sensors import sensors


@dg.resource(
    config_schema={
        "backend": dg.Field(str, description="inline or process"),
        "workers": dg.Field(int, description="processes"),
    },
    description="Where the trials of a step run.",
)
def step_runner(context: dg.InitResourceContext) -> Iterator[Runner]:
    """Yield a runner that ends with the step."""
    config = context.resource_config
    settings = {"runner": config["backend"], "workers": config["workers"]}
    with runner(Runtime.model_validate(settings)) as opened:
        yield opened


def experiment_resource(experiment: Frozen) -> ExperimentResource:
    """Return the experiment as the steps read it."""
    lake = LakeResource(root=str(experiment.lake.root))
    return ExperimentResource(
        source=experiment.source,
        overrides=list(experiment.overrides),
        snapshot=experiment.config.model_dump(mode="json"),
        lake=lake,
        device=DeviceResource(name=experiment.config.runtime.device),
    )


def definitions(experiment: Frozen, trial_runner: Runner | None = None) -> dg.Definitions:
    """Return the definitions of an experiment on its lake.

    Args:
        experiment: what they are made of.
        trial_runner: one for all steps of this process; None: each step opens its own.
    """
    config = experiment.config
    opened = experiment_resource(experiment)
    own = {"backend": config.runtime.runner, "workers": config.runtime.workers}
    defined = jobs(config.runtime.workers)
    return dg.Definitions(
        assets=graph(partitions(config, experiment.lake)),
        jobs=defined,
        schedules=[new_window(config.folds.cron, config.study.instruments)],
        sensors=sensors(opened, defined),
        resources={
            "experiment": opened,
            "lake": opened.lake,
            "device": opened.device,
            "warehouse": WarehouseResource(lake=opened.lake),
            "runner": trial_runner or step_runner.configured(own),
        },
    )
