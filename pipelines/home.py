"""DAGSTER_HOME of a lake: its dagster.yaml, the frozen experiment, and runs that were killed.

The home is `<lake>/.dagster` for the command line and the UI alike. The experiment that ran or was
opened last lies beside it as `<lake>/experiment.json`: code servers show that one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backtest.config import Config, load, parse, profile
from backtest.lake import Lake, atomic_write, locked, read_json, write_json

if TYPE_CHECKING:
    import dagster as dg

SHIPPED = Path(__file__).resolve().parent.parent / "dagster.yaml"
DEFAULT = "smoketest"  # the profile of a lake without an experiment


@dataclass(frozen=True)
class Frozen:
    """An experiment as it was loaded: nothing is read again from its file."""

    config: Config
    lake: Lake
    source: str  # file or profile, for people
    overrides: tuple[str, ...] = ()  # already applied


def snapshot_path(lake: Lake) -> Path:
    """Return where the experiment that ran or was opened last lies."""
    return lake.root / "experiment.json"


def prepare(experiment: Frozen) -> Path:
    """Make the home and remember the experiment; return the home.

    A dagster.yaml that is there stays: a team may have pointed it at its own storage.
    """
    home = experiment.lake.dagster_home
    home.mkdir(parents=True, exist_ok=True)
    settings = home / "dagster.yaml"
    if not settings.exists():
        with atomic_write(settings) as temporary:
            shutil.copyfile(SHIPPED, temporary)
    write_json(
        snapshot_path(experiment.lake),
        {
            "source": experiment.source,
            "overrides": list(experiment.overrides),
            "config": experiment.config.model_dump(mode="json"),
        },
    )
    return home


def saved(lake: Lake) -> Frozen:
    """Return the experiment that a code server shows: the last one of the lake, else smoketest.

    Raises:
        ConfigError: it was written by another version.
        StoreError: the file is damaged.
    """
    path = snapshot_path(lake)
    if not path.is_file():
        return Frozen(load(profile(DEFAULT)), lake, f"profile {DEFAULT}")
    value = read_json(path)
    config = parse(value["config"], where=str(path))
    return Frozen(config, lake, value["source"], tuple(value["overrides"]))


def served_lake() -> Lake:
    """Return the lake of a code server: that of its DAGSTER_HOME, else `lake` in its folder."""
    home = Path(os.environ.get("DAGSTER_HOME", ""))
    return Lake(home.resolve().parent if home.name == ".dagster" else Path("lake").resolve())


def instance(home: Path, instruments: Sequence[str]) -> dg.DagsterInstance:
    """Open the home for runs in this process, and register instruments as partitions.

    Standard output is the command line's own: it is not captured as the log of a step. Pools are
    for runs that the daemon queues: a run in this process waits for no other.
    """
    from dagster import DagsterInstance
    from dagster._core.instance.ref import InstanceRef

    from assets.partitions import INSTRUMENTS

    quiet = {
        "module": "dagster._core.storage.noop_compute_log_manager",
        "class": "NoOpComputeLogManager",
    }
    alone = {"pools": {"granularity": "run"}}
    reference = InstanceRef.from_dir(
        str(home), overrides={"compute_logs": quiet, "concurrency": alone}
    )
    with locked(home / ".opening"):  # two processes would both create the tables
        opened = DagsterInstance.from_ref(reference)
        opened.add_dynamic_partitions(str(INSTRUMENTS.name), list(instruments))
        opened.get_runs_count()
        opened.all_instigator_state()
    return opened


@contextmanager
def alive(home: Path, run_id: str) -> Iterator[None]:
    """Hold the lock that shows others that this execution still lives."""
    import fcntl  # POSIX only, as in `backtest.lake`

    folder = home / "executions"
    folder.mkdir(exist_ok=True)
    path = folder / f"{run_id}.lock"
    with path.open("a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def killed(home: Path) -> list[str]:
    """Return the executions that ended without a word, and forget them."""
    import fcntl

    found = []
    for path in sorted((home / "executions").glob("*.lock")):
        with path.open("a", encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue  # it lives
            found.append(path.stem)
            path.unlink(missing_ok=True)
    return found


def close_killed(opened: dg.DagsterInstance, lake: Lake, executions: Sequence[str]) -> None:
    """Close the Dagster runs of killed executions, and record them as failed."""
    from dagster import RunsFilter

    from assets.resources import RUN_TAG
    from backtest.store import record_run

    for run_id in executions:
        for run in opened.get_runs(RunsFilter(tags={RUN_TAG: run_id})):
            if not run.is_finished:
                opened.report_run_failed(run, "its process was killed")
        row = run_row(lake, run_id)
        if row is not None:
            record_run(lake, {**row, "status": "failed"})


def run_row(lake: Lake, run_id: str) -> dict[str, Any] | None:
    """Return the recorded row of an execution; None when there is none."""
    from backtest.lake import read_table

    files = sorted(lake.results.glob(f"*/@parts/@study/run-{run_id}/*/run.parquet"))
    return dict(read_table(files[-1]).to_pylist()[0]) if files else None
