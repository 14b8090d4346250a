"""Definitions of one frozen experiment: assets, checks, jobs, schedule, sensors, resources."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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


class RunnerResource(dg.ConfigurableResourceFactory[Any]):
    """Where the trials of a step run."""

    backend: str
    workers: int

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Runner]:
        """Yield a runner that ends with the step."""
        settings = Runtime.model_validate({"runner": self.backend, "workers": self.workers})
        with runner(settings) as opened:
            yield opened


def definitions(experiment: Frozen, trial_runner: Runner | None = None) -> dg.Definitions:
    """Return the definitions of an experiment on its lake.

    Args:
        experiment: what they are made of.
        trial_runner: one for all steps of this process; None: each step opens its own.
    """
    config = experiment.config
    lake = LakeResource(root=str(experiment.lake.root))
    device = DeviceResource(name=config.runtime.device)
    opened = ExperimentResource(
        source=experiment.source,
        overrides=list(experiment.overrides),
        snapshot=config.model_dump(mode="json"),
        lake=lake,
        device=device,
    )
    defined = jobs(config.runtime.workers)
    return dg.Definitions(
        assets=graph(partitions(config, experiment.lake)),
        jobs=defined,
        schedules=[new_window(config.folds.cron, config.study.instruments)],
        sensors=sensors(opened, defined),
        resources={
            "experiment": opened,
            "lake": lake,
            "device": device,
            "warehouse": WarehouseResource(lake=lake),
            "runner": trial_runner
            or RunnerResource(backend=config.runtime.runner, workers=config.runtime.workers),
        },
    )
