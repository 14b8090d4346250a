"""`skillwalk run`: the whole walk-forward, as the same Dagster assets that the UI shows."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.commands.folds import bars_of
from pipelines.commands.options import (
    LAKE,
    ConfigFile,
    JsonFile,
    LakeFolder,
    Overrides,
    Profile,
    experiment,
    source_name,
)
from pipelines.commands.store import show_summaries, summary_figures
from pipelines.console import program, progress, say, write_figures

if TYPE_CHECKING:
    from pathlib import Path

    from backtest.experiment import Experiment
    from pipelines.outcome import RunOutcome

EXAMPLE = "Example: skillwalk run --profile smoketest --set learner.updates=1500 --lake lake"
EXIT = {"complete": 0, "failed": 1, "cancelled": 130}
QUERY = "SELECT variant, value, low, high FROM walk_forward_summary WHERE name = 'sharpe'"


def run(
    config: ConfigFile = None,
    profile: Profile = None,
    overrides: Overrides = None,
    force: Annotated[
        bool, typer.Option("--force", help="Make every fold again, even where it has a result.")
    ] = False,
    accept_reward: Annotated[
        bool, typer.Option("--accept-reward", help="Train even if the reward audit fails.")
    ] = False,
    lake: LakeFolder = LAKE,
    json: JsonFile = None,
) -> None:
    """Run the whole walk-forward: bars, features, experience, policies, skills, results.

    Ends with the out-of-sample table beside the baselines and, with skill banks, with what they
    were worth. What has a result is not computed again; a run that was interrupted goes on where
    it stopped. Exit 1 when a fold or a check fails.
    """
    from backtest.summary import summarize

    found = experiment(config, profile, overrides, lake)
    check(found)
    source = source_name(config, profile)
    outcome = execute(
        found, source, overrides or [], "walk-forward", force=force, accept_reward=accept_reward
    )
    if outcome.store is not None:
        summaries = summarize(found.lake, found.study_id)
        show_summaries(summaries)
        write_figures(json, summary_figures(summaries) | {"run": run_figures(outcome)})
        say(next_steps(lake))
    if accept_reward:
        checks = tuple(check for check in outcome.checks if check.asset != "reward_audit")
        outcome = replace(outcome, checks=checks)
    say(ended(outcome))
    raise typer.Exit(EXIT[outcome.status] or int(not outcome.ok))


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


def execute(
    found: Experiment,
    source: str,
    overrides: list[str],
    title: str,
    *,
    force: bool = False,
    accept_reward: bool = False,
) -> RunOutcome:
    """Materialise every asset of the study, with progress; see `run_study`."""
    import shlex
    import sys

    from pipelines.execution import run_study
    from pipelines.outcome import Progress

    with progress(title, 1.0) as step:

        def tell(event: Progress) -> None:
            if event.kind == "problem":
                step.note(event.text)
            else:
                step(event.share, event.text)

        return run_study(
            found,
            source=source,
            overrides=overrides,
            command=shlex.join(["skillwalk", *sys.argv[1:]]),
            tell=tell,
            force=force,
            accept_reward=accept_reward,
        )


def ended(outcome: RunOutcome) -> str:
    """Return the last line: what was made, kept and lost."""
    counts = Counter(fold.status for fold in outcome.folds)
    folds = ", ".join(f"{n} {status}" for status, n in counts.items()) or "none"
    failed = [c for c in outcome.checks if not c.warning]
    words = f", {len(failed)} check{'s FAIL' if len(failed) > 1 else ' FAILS'}" if failed else ""
    return f"run {outcome.run_id} {outcome.status}: folds {folds}{words}"


def run_figures(outcome: RunOutcome) -> dict[str, object]:
    """Return what `--json` says about the execution itself."""
    return {
        "run_id": outcome.run_id,
        "status": outcome.status,
        "folds": [asdict(fold) for fold in outcome.folds],
        "checks": [asdict(check) for check in outcome.checks],
    }


def next_steps(lake: Path) -> str:
    """Say how to look at the results, with a command that works where this one did."""
    where = "" if lake == LAKE else f" --lake {lake}"
    here = program()
    return (
        f"Look at runs, partitions and plots: {here} ui{where}"
        f"{' (or: make ui)' if not where else ''}\n"
        f'Query the results: {here} sql{where} "{QUERY}"'
    )
