"""`skillwalk run`: the whole walk-forward, as the same Dagster assets that the UI shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.commands.folds import bars_of
from pipelines.commands.options import (
    LAKE,
    ConfigFile,
    JsonFile,
    LakeFolder,
    Overrides,
    Profile,
    experiment,
)
from pipelines.commands.store import show_summaries, summary_figures
from pipelines.console import progress, say, write_figures

if TYPE_CHECKING:
    from pathlib import Path

    from backtest.experiment import Experiment

EXAMPLE = "Example: skillwalk run --profile smoketest --set learner.updates=1500 --lake lake"
QUERY = "SELECT variant, value, low, high FROM walk_forward_summary WHERE name = 'sharpe'"


def run(
    config: ConfigFile = None,
    profile: Profile = None,
    overrides: Overrides = None,
    lake: LakeFolder = LAKE,
    json: JsonFile = None,
) -> None:
    """Run the whole walk-forward: bars, features, experience, policies, evaluation, store.

    Ends with the out-of-sample table beside the baselines. What was already computed is not
    computed again; a run that was interrupted goes on where it stopped.
    """
    from backtest.summary import summarize

    found = experiment(config, profile, overrides, lake)
    check(found)
    execute(found)
    summaries = summarize(found.lake, found.study_id)
    show_summaries(summaries)
    say(next_steps(lake))
    write_figures(json, summary_figures(summaries))


def check(found: Experiment) -> None:
    """Refuse what cannot work, before anything is written.

    Raises:
        BacktestError: no device, a source that cannot be read, or folds that do not fit the bars.
    """
    from backtest.calendar_folds import calendar_folds
    from opencl.devices import select

    select(found.config.runtime.device)
    for name in found.config.study.instruments:
        bars = bars_of(found, name)
        always_open = found.always_open(name)
        calendar_folds(found.config.folds, bars.time, bars.session, always_open)


def execute(found: Experiment, title: str = "walk-forward") -> None:
    """Materialise every asset of the study, with progress."""
    from pipelines.execution import run_study

    raise NotImplementedError


def next_steps(lake: Path) -> str:
    """Say how to look at the results."""
    where = "" if lake == LAKE else f" --lake {lake}"
    return (
        f"Look at runs, partitions and plots: skillwalk ui{where}"
        f"{' (or: make ui)' if not where else ''}\n"
        f'Query the results: skillwalk sql{where} "{QUERY}"'
    )
