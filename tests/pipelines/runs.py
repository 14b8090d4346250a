"""Whole runs of a miniature study: two weekly folds of hourly bars that come from a file."""

import shutil
from pathlib import Path

from backtest.data.ingest import ingest
from backtest.experiment import Experiment
from backtest.lake import Lake
from backtest.queries import query
from backtest.schema import declared
from pipelines.execution import run_study
from pipelines.outcome import RunOutcome
from tests.study import configuration

FOLDS = ("2000-02-21", "2000-02-28")
BARS = 65 * 24  # the last one closes with the second fold
LONGER = BARS + 9 * 24  # a third fold, and two days of a fourth
SMALL = (
    "study.seeds=[0]",
    "audit.horizons=[100]",
    "audit.synthetic_episodes=2048",
    "audit.user_episodes=256",
)
# When and where a row was made, and by which execution.
VOLATILE = {
    "study": {"created"},
    "trial": {"started", "seconds"},
    "policy": {"run_id"},
    "curve": {"steps_per_s", "updates_per_s"},
}


def bars_file(path: Path, bars: int) -> Path:
    """Write hourly bars; more of them begin with the same ones."""
    made = path.parent / f"made_{bars}"
    settings = configuration(bars=bars).instrument_settings("ONE")
    shutil.copyfile(ingest("ONE", settings, made).path, path)
    return path


def study(root: Path, source: Path, *overrides: str) -> Experiment:
    """Return the study of the bars in a file on a lake."""
    found = configuration(f"instruments.ONE.source={source}", *SMALL, *overrides)
    return Experiment(found, Lake(root))


def run(experiment: Experiment, **options: object) -> RunOutcome:
    """Run it."""
    return run_study(experiment, source="tests", **options)


def rows(experiment: Experiment) -> dict[str, list[dict]]:
    """Return what the store says of the study, by table, without volatile columns and runs."""
    found = {}
    for table, schema in declared().items():
        if table == "run":
            continue
        hidden = VOLATILE.get(table, set())
        names = ", ".join(f'"{n}"' for n in schema.schema.names if n not in hidden)
        keys = ", ".join(f'"{n}"' for n in schema.key) or "ALL"
        sql = f"SELECT {names} FROM {table} ORDER BY {keys}"
        found[table] = query(experiment.lake, sql).rows
    return found


def count(experiment: Experiment, table: str) -> int:
    """Return the number of rows of a table."""
    return query(experiment.lake, f"SELECT count(*) AS n FROM {table}").rows[0]["n"]
