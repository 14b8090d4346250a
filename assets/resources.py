"""Resources: the experiment on its lake, the device, the store. The trial runner is pipelines'.

An experiment is frozen when a code server or a run loads it; what a step reads is this copy.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of its resources.
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from assets.partitions import parts
from backtest import identity
from backtest.config import Config, parse
from backtest.errors import ConfigError
from backtest.experiment import Experiment
from backtest.lake import Lake
from backtest.splits import Fold
from backtest.store import record_run, record_study

if TYPE_CHECKING:
    from backtest.publication import Published
    from opencl.devices import Device
    from opencl.training import TrainSpec

RUN_TAG = "skillwalk/run_id"
FIXED = ("folds.", "study.instruments")  # what the partitions are made of


class LakeResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """The folder of all outputs."""

    root: str

    @property
    def lake(self) -> Lake:
        """The lake."""
        return Lake(Path(self.root))


class DeviceResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """The OpenCL device of every step."""

    name: str = Field(description="auto, cpu, gpu or part of a device's name")

    def select(self) -> "Device":
        """Return the device; its driver is loaded now, not when the code server starts."""
        from opencl.devices import select

        return select(self.name)


class ExperimentResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """The configuration as it was frozen."""

    source: str = Field(description="the file or profile it was read from, for people")
    applied: list[str] = Field(default=[], description="overrides that the snapshot contains")
    snapshot: dict[str, Any] = Field(description="every setting of the experiment")
    overrides: list[str] = Field(
        default=[], description="more of them, section.key=value, for one launch"
    )
    lake: LakeResource
    device: DeviceResource

    def open(self) -> Experiment:
        """Return the experiment.

        Raises:
            ConfigError: an override that is wrong, or that changes the partitions.
        """
        for override in self.overrides:
            if override.startswith(FIXED):
                raise ConfigError(
                    f"override {override}: folds and instruments are the partitions; change "
                    f"{self.source} and start `skillwalk ui` or `skillwalk run` again"
                )
        runtime = [f"runtime.device={self.device.name}"]
        tables = parse(dict(self.snapshot)).model_dump(mode="json")
        config = parse(tables, [*self.overrides, *runtime], where=self.source)
        return Experiment(config, self.lake.lake)


class WarehouseResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """The DuckDB store: one writer, many readers."""

    lake: LakeResource

    def publish(self, experiment: Experiment, run_id: str) -> "Published":
        """Write the study's figures over all folds and publish the lake."""
        from backtest.walk_forward import publish_study

        return publish_study(experiment, run_id)


@dataclass(frozen=True)
class FoldStep:
    """What a step of one fold works on."""

    experiment: Experiment
    instrument: str
    fold: Fold
    fold_id: str
    run_id: str

    @property
    def skipped(self) -> bool:
        """Nothing can be computed: no bars, or too little history."""
        return self.fold.status == "skipped"

    @property
    def metadata(self) -> dict[str, Any]:
        """What every asset of the fold shows."""
        return {
            "status": self.fold.status,
            **({"reason": self.fold.reason} if self.fold.reason else {}),
            "fold_id": self.fold_id,
            "study_id": self.experiment.study_id,
        }

    def spec(self, seed: int) -> "TrainSpec":
        """Return what to train of a seed."""
        from opencl.training import TrainSpec

        experiment = self.experiment
        return TrainSpec(
            config=experiment.config,
            lake=experiment.lake.root,
            instrument=self.instrument,
            fold_key=self.fold.key,
            seed=seed,
            run_id=self.run_id,
        )

    def policies(self) -> Path:
        """Return the folder of the fold's policies."""
        return self._folder(self.experiment.lake.policies)

    def skills(self) -> Path:
        """Return the folder of the fold's skill banks."""
        return self._folder(self.experiment.lake.skills)

    def experience(self) -> Path:
        """Return the folder of the fold's first collection."""
        return self._folder(self.experiment.lake.experience)

    def _folder(self, of: Callable[[str, str, str, str], Path]) -> Path:
        return of(self.experiment.study_id, self.instrument, self.fold.key, self.fold_id)


def fold_step(context: dg.AssetExecutionContext, opened: ExperimentResource) -> FoldStep:
    """Return the fold of the step's only partition; see `fold_steps`."""
    (step,) = fold_steps(context, opened).values()
    return step


def fold_steps(
    context: dg.AssetExecutionContext, opened: ExperimentResource
) -> dict[str, FoldStep]:
    """Return the folds of the step's partitions, by partition key.

    Raises:
        DataError: an instrument was not ingested.
    """
    experiment, found = opened.open(), {}
    for partition in context.partition_keys:
        instrument, key = parts(partition)
        fold = experiment.fold(instrument, key)
        fold_id = experiment.fold_id(instrument, fold)
        found[partition] = FoldStep(experiment, instrument, fold, fold_id, run_id(context))
    return found


def run_id(context: dg.AssetExecutionContext) -> str:
    """Return the execution that writes a row: that of `skillwalk run`, else this Dagster run."""
    return context.run.tags.get(RUN_TAG, context.run.run_id)


def record_execution(context: dg.AssetExecutionContext, experiment: Experiment) -> None:
    """Record a run that the UI or the daemon started; `skillwalk run` records itself."""
    if RUN_TAG in context.run.tags:
        return
    stats = context.instance.get_run_record_by_id(context.run.run_id)
    started = datetime.fromtimestamp(stats.start_time, UTC) if stats and stats.start_time else None
    begin(experiment, context.run.run_id)
    end = datetime.now(UTC)
    row = run_row(experiment, context.run.run_id, f"dagster job {context.job_name}")
    record_run(
        experiment.lake, {**row, "started": started or end, "finished": end, "status": "complete"}
    )


def begin(experiment: Experiment, run: str) -> None:
    """Record the study; the first execution wins."""
    settings = identity.study_settings(experiment.config)
    record_study(experiment.lake, experiment.study_id, run, settings, identity.provenance())


def run_row(experiment: Experiment, run: str, command: str) -> Mapping[str, Any]:
    """Return the row of table run of an execution that starts now, on the study's device."""
    from opencl.devices import select

    device = select(experiment.config.runtime.device)
    return {
        "run_id": run,
        "study_id": experiment.study_id,
        "started": datetime.now(UTC),
        "finished": None,
        "device": device.name,
        "driver": device.driver,
        "host_os": identity.provenance().host_os,
        "status": "running",
        "command": command,
    }


def frozen(config: Config) -> dict[str, Any]:
    """Return a configuration as plain JSON values."""
    return config.model_dump(mode="json")
