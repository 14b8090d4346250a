"""Runs that are killed, interrupted, or not alone on their lake."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from backtest.queries import query
from pipelines.home import killed, run_row
from pipelines.pending import finished
from tests.pipelines import runs

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 600.0  # seconds


def started(lake, source, *overrides):
    """Start a run in a process of its own; SIGINT reaches it as from a terminal."""
    command = [sys.executable, "-m", "tests.pipelines.run_process", str(lake), str(source)]
    return subprocess.Popen(
        [*command, *overrides],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def group_is_gone(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGKILL, id="kill -9"),
        pytest.param(signal.SIGINT, id="Ctrl-C", marks=pytest.mark.slow),
    ],
)
def test_a_stopped_run_goes_on_and_gives_the_same_rows(tmp_path, reference, number):
    experiment = runs.study(tmp_path / "lake", reference.source)
    process = started(tmp_path / "lake", reference.source, "runtime.runner=process")
    results = experiment.lake.results / experiment.study_id / "ONE"
    wait_for(lambda: list(results.glob("*/*/manifest.json")) or process.poll() is not None)
    assert process.poll() is None
    os.kill(process.pid, number)
    output, _ = process.communicate(timeout=PATIENCE)
    wait_for(lambda: group_is_gone(process.pid))  # no worker goes on alone
    done = [finished(experiment, "ONE", fold) for fold in experiment.folds("ONE")]
    assert done == [True, False]
    (record,) = experiment.lake.results.glob("*/@parts/@study/run-*")
    first = record.name.removeprefix("run-")
    if number == signal.SIGINT:
        assert output.split() == ["cancelled", "0"] or output.split() == ["cancelled", "1"]
        assert run_row(experiment.lake, first)["status"] == "cancelled"
    else:
        assert run_row(experiment.lake, first)["status"] == "running"

    outcome = runs.run(experiment)
    assert outcome.ok and [fold.status for fold in outcome.folds] == ["kept", "made"]
    assert runs.rows(experiment) == reference.rows
    states = query(experiment.lake, "SELECT status FROM run ORDER BY started").rows
    ended = "cancelled" if number == signal.SIGINT else "failed"
    assert [row["status"] for row in states] == [ended, "complete"]
    assert killed(experiment.lake.dagster_home) == []


@pytest.mark.slow
def test_runs_at_once_on_one_lake(tmp_path, reference):
    """Of two studies: disjoint rows. Of one study, twice: its rows once."""
    lake, source = tmp_path / "lake", reference.source
    settings = [f"learner.gamma={gamma}" for gamma in (0.8, 0.8, 0.5)]
    processes = [started(lake, source, setting) for setting in settings]
    outputs = [process.communicate(timeout=PATIENCE)[0].split() for process in processes]
    assert outputs == [["complete", "2"]] * 3
    studies = {runs.study(lake, source, setting).study_id for setting in settings}
    found = query(
        runs.study(lake, source).lake,
        "SELECT study_id, count(DISTINCT fold_id) AS folds, count(*) AS rows "
        "FROM fold JOIN equity USING (fold_id) GROUP BY study_id",
    ).rows
    assert {row["study_id"] for row in found} == studies and len(studies) == 2
    assert {row["folds"] for row in found} == {2}
    assert {row["rows"] for row in found} == {len(reference.rows["equity"])}
