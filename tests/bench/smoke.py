"""The smoke test as a user runs it: real bars to DuckDB by `skillwalk run --profile smoketest`.

A process of its own on an empty lake: start, kernels, features, training, skills, evaluation and
publication. It is timed only if the store then holds every fold of the plan, complete.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from opencl.devices import Device
from tests.bench.rows import Row

COMMAND = (sys.executable, "-c", "from pipelines.cli import main; main()", "run")
PROFILE = ("--profile", "smoketest")
FOLDS = 8  # of the profile
# one fold of one seed with almost no training
QUICK = ("study.seeds=[0]", "folds.end=2012-01-01", "learner.updates=24", "skills.banks=[]")
ROOT = Path(__file__).resolve().parents[2]


def run(device: Device, quick: bool = False) -> list[Row]:
    """Measure one run."""
    settings = [f"runtime.device={device.name}", *(QUICK if quick else ())]
    with TemporaryDirectory() as folder:
        lake = Path(folder) / "lake"
        given = [text for setting in settings for text in ("--set", setting)]
        command = [*COMMAND, *PROFILE, "--lake", str(lake), *given]
        begin = time.perf_counter()
        ended = subprocess.run(
            command, cwd=ROOT, env=os.environ, check=False, capture_output=True, text=True
        )
        seconds = time.perf_counter() - begin
        if ended.returncode:
            raise AssertionError(f"the run ended with {ended.returncode}: {ended.stderr[-300:]}")
        bars, folds, seeds = held(lake)
    planned = 1 if quick else FOLDS
    if folds != planned:
        raise AssertionError(f"{folds} complete folds of {planned} in the store; not timed")
    detail = f"{bars:,} bars, {folds} folds x {seeds} seeds, by the command line"
    goal = "" if quick else "smoke"
    return [Row("smoke test, bars to DuckDB", seconds, "s", detail, goal=goal)]


def held(lake: Path) -> tuple[int, int, int]:
    """Return bars of the instrument, complete folds and seeds of a lake's store."""
    with duckdb.connect(str(lake / "backtest.duckdb"), read_only=True) as store:
        found = store.execute(
            "SELECT max(test_stop), count(DISTINCT f.fold_id), count(DISTINCT p.seed) "
            "FROM fold f JOIN policy p USING (fold_id) WHERE f.status = 'complete'"
        ).fetchone()
    assert found is not None
    return found
