"""Definitions of one frozen experiment: assets, checks, jobs, schedule, sensors, resources."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import dagster as dg

from assets.graph import graph
from assets.partitions import Partitions, partitions
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
        "backend": dg.Field(str, description="auto, inline or process"),
        "device": dg.Field(str, description="what auto asks: a GPU or a CPU"),
        "workers": dg.Field(int, description="processes"),
    },
    description="Where the trials of a step run.",
)
def step_runner(context: dg.InitResourceContext) -> Iterator[Runner]:
    """Yield a runner that ends with the step."""
    config = context.resource_config
    settings = {"runner": config["backend"]} | {n: config[n] for n in ("device", "workers")}
    with runner(Runtime.model_validate(settings)) as opened:
        yield opened


def experiment_resource(experiment: Frozen) -> ExperimentResource:
    """Return the experiment as the steps read it."""
    lake = LakeResource(root=str(experiment.lake.root))
    return ExperimentResource(
        source=experiment.source,
        applied=list(experiment.overrides),
        snapshot=experiment.config.model_dump(mode="json"),
        lake=lake,
        device=DeviceResource(name=experiment.config.runtime.device),
    )


@dg.logger(
    config_schema={"log_level": dg.Field(str, default_value="WARNING")},
    description="What steps say on the terminal; the UI shows everything.",
)
def console(context: dg.InitLoggerContext) -> logging.Logger:
    """Return a logger for the terminal that runs were started from."""
    logger = logging.getLogger("skillwalk.steps")
    logger.setLevel(context.logger_config["log_level"])
    if not logger.handlers:
        logger.addHandler(logging.StreamHandler())
        logger.propagate = False
    return logger


def definitions(
    experiment: Frozen, trial_runner: Runner | None = None, plan: Partitions | None = None
) -> dg.Definitions:
    """Return the definitions of an experiment on its lake.

    Args:
        experiment: what they are made of.
        trial_runner: one for all steps of this process; None: each step opens its own.
        plan: its partitions; None: made from the bars on the lake.
    """
    config = experiment.config
    opened = experiment_resource(experiment)
    runtime = config.runtime
    own = {"backend": runtime.runner, "device": runtime.device, "workers": runtime.workers}
    defined = jobs(config.runtime.workers)
    return dg.Definitions(
        assets=graph(plan or partitions(config, experiment.lake)),
        jobs=defined,
        schedules=[new_window(config.folds.cron, config.study.instruments)],
        sensors=sensors(opened, defined),
        loggers={"console": console},
        resources={
            "experiment": opened,
            "lake": opened.lake,
            "device": opened.device,
            "warehouse": WarehouseResource(lake=opened.lake),
            "runner": trial_runner or step_runner.configured(own),
        },
    )
