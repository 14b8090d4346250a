"""One finished run of the miniature study, shared by the tests of whole runs."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from backtest.experiment import Experiment
from pipelines.outcome import Progress, RunOutcome
from tests.pipelines import runs


@dataclass(frozen=True)
class Reference:
    """The study after its first run; do not write to its lake."""

    experiment: Experiment
    source: Path
    outcome: RunOutcome
    events: list[Progress]
    rows: dict[str, list[dict]]


@pytest.fixture(scope="session")
def reference(tmp_path_factory) -> Reference:
    """The miniature study, run once."""
    source = runs.bars_file(tmp_path_factory.mktemp("source") / "one.parquet", runs.BARS)
    experiment = runs.study(tmp_path_factory.mktemp("reference"), source)
    events: list[Progress] = []
    outcome = runs.run(experiment, tell=events.append)
    return Reference(experiment, source, outcome, events, runs.rows(experiment))
