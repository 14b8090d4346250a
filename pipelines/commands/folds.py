"""`skillwalk folds`: which bars train, validation and test windows hold, before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from backtest.errors import ConfigError
from pipelines.commands.options import (
    LAKE,
    ConfigFile,
    InstrumentName,
    JsonFile,
    LakeFolder,
    Overrides,
    Profile,
    experiment,
    instruments,
)
from pipelines.console import say, table, write_figures

if TYPE_CHECKING:
    from backtest.data.bars import Bars
    from backtest.experiment import Experiment
    from backtest.splits import Fold, WalkForward, Window

EXAMPLE = (
    "Example: skillwalk folds --profile smoketest. Plans in bars or sessions, to try out: "
    "skillwalk folds --unit bars --train 2000 --validation 500 --test 500"
)
COLUMNS = ("fold", "key", "train", "validation", "test", "test from", "to", "status", "reason")


def folds(
    config: ConfigFile = None,
    profile: Profile = None,
    overrides: Overrides = None,
    instrument: InstrumentName = None,
    unit: Annotated[
        Literal["calendar", "sessions", "bars"],
        typer.Option(help="What a plan counts; calendar plans are the [folds] of the experiment."),
    ] = "calendar",
    train: Annotated[
        int | None, typer.Option(metavar="N", show_default=False, help="Units of train.")
    ] = None,
    validation: Annotated[
        int | None, typer.Option(metavar="N", show_default=False, help="Units of validation.")
    ] = None,
    test: Annotated[
        int | None, typer.Option(metavar="N", show_default=False, help="Units of test.")
    ] = None,
    mode: Annotated[
        Literal["rolling", "anchored"], typer.Option(help="Whether train starts anew or grows.")
    ] = "rolling",
    lake: LakeFolder = LAKE,
    json: JsonFile = None,
) -> None:
    """List the folds: bar ranges [start, stop), dates, purge and status. Nothing is written.

    Bars come from the lake, or from the configured source when they are not there yet. Purge,
    embargo, warm-up and horizon are those of [folds], for every unit.
    """
    from backtest.calendar_folds import calendar_plan, section

    found = experiment(config, profile, overrides, lake)
    figures = []
    for name in instruments(found.config, instrument):
        bars = bars_of(found, name)
        if unit == "calendar":
            if (train, validation, test, mode) != (None, None, None, "rolling"):
                raise ConfigError(
                    "--train, --validation, --test and --mode go with --unit bars or sessions; a "
                    "calendar plan is changed by --set folds.train=N"
                )
            with section():
                plan = calendar_plan(found.config.folds, always_open=found.always_open(name))
                listed = plan.folds(len(bars), bars.time, bars.session)
        else:
            plan = counted_plan(found, name, unit, train, validation or 0, test, mode)
            listed = plan.folds(len(bars), bars.time, bars.session)
        show(name, bars, plan, listed)
        figures.append(
            {
                "instrument": name,
                "bars": len(bars),
                "purge": plan.purged,
                "embargo": plan.embargo,
                "warmup": plan.warmup,
                "folds": [fold_figures(fold, bars) for fold in listed],
            }
        )
    write_figures(json, {"study_id": found.study_id, "instruments": figures})


def counted_plan(
    found: Experiment,
    name: str,
    unit: Literal["sessions", "bars"],
    train: int | None,
    validation: int,
    test: int | None,
    mode: Literal["rolling", "anchored"],
) -> WalkForward:
    """Return a plan in bars or sessions with the margins of [folds]."""
    from backtest.splits import WalkForward

    if train is None or test is None:
        raise ConfigError(f"--unit {unit} needs --train N and --test N")
    section = found.config.folds
    return WalkForward(
        train=train,
        validation=validation,
        test=test,
        mode=mode,
        purge=section.purge,
        embargo=section.embargo,
        warmup=section.warmup,
        horizon=section.horizon,
        fill_lag=section.fill_lag,
        unit=unit,
        calendar="24/7" if found.always_open(name) else None,
        keep_partial=True,
    )


def bars_of(found: Experiment, name: str) -> Bars:
    """Return the bars of the lake, else those of the source, which are read and not written."""
    if found.lake.bars(name).is_file():
        return found.bars(name)
    from backtest.data.ingest import clean, read
    from backtest.data.issues import Findings

    settings = found.instrument(name)
    findings = Findings(name, settings.source, settings.issues)
    raw, settled = read(name, settings, findings)
    bars, _ = clean(raw, settled, findings)
    return bars


def show(name: str, bars: Bars, plan: WalkForward, listed: list[Fold]) -> None:
    """Print the folds of one instrument."""
    rows = []
    for fold in listed:
        first, last = days(fold.test, bars)
        ranges = (span(fold.train), span(fold.validation), span(fold.test))
        rows.append((fold.index, fold.key, *ranges, first, last, fold.status, fold.reason))
    table(COLUMNS, rows, f"{name}: {len(listed)} folds of {len(bars):,} bars")
    say(
        f"purge {plan.purged} bars from the end of train and of validation, embargo "
        f"{plan.embargo}, warm-up {plan.warmup}; ranges are half-open"
    )


def span(window: Window) -> str:
    """Return a range of bars for people."""
    return f"[{window.start}, {window.stop})" if len(window) else "none"


def days(window: Window, bars: Bars) -> tuple[str | None, str | None]:
    """Return the first and the last session date of a window."""
    import numpy as np

    if not len(window):
        return None, None
    first, last = (bars.session[b] for b in (window.start, window.stop - 1))
    return str(np.datetime64(int(first), "D")), str(np.datetime64(int(last), "D"))


def fold_figures(fold: Fold, bars: Bars) -> dict[str, Any]:
    """Return what `--json` writes for one fold."""
    figures: dict[str, Any] = {"index": fold.index, "key": fold.key}
    for part in ("train", "validation", "test"):
        window = getattr(fold, part)
        first, last = days(window, bars)
        figures[part] = {"start": window.start, "stop": window.stop, "first": first, "last": last}
    return figures | {"status": fold.status, "reason": fold.reason or None}
