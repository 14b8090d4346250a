"""`skillwalk lookahead` and `controls`: can a number that comes out of this be believed?"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.commands.folds import bars_of
from pipelines.commands.options import (
    LAKE,
    ConfigFile,
    InstrumentName,
    JsonFile,
    LakeFolder,
    Overrides,
    Profile,
    configuration,
    experiment,
    instruments,
)
from pipelines.console import progress, say, table, write_figures

if TYPE_CHECKING:
    from backtest.controls import Outcome
    from backtest.lookahead import Leak
    from opencl.lookahead import Comparison

LOOKAHEAD_EXAMPLE = "Example: skillwalk lookahead --profile smoketest"
CONTROLS_EXAMPLE = "Example: skillwalk controls --quick --json controls.json"


def lookahead(
    config: ConfigFile = None,
    profile: Profile = None,
    overrides: Overrides = None,
    instrument: InstrumentName = None,
    lake: LakeFolder = LAKE,
    json: JsonFile = None,
) -> None:
    """Cut the history, change the future, and see what moves; exit 1 when anything does.

    Every feature is computed on cut and on changed bars and compared exactly with the whole; then
    the rows, the scaler and the price base that the first and the last fold train and choose by,
    and the decisions and steps of their test windows. A planted leak shows that the check can fail.
    """
    from backtest.calendar_folds import calendar_folds
    from backtest.lookahead import CANARY, leaks, shipped, with_canary
    from opencl.devices import select
    from opencl.lookahead import fold_comparisons

    found = experiment(config, profile, overrides, lake)
    names = instruments(found.config, instrument)
    device = select(found.config.runtime.device)
    leaking: dict[str, list[Leak]] = {}
    compared: dict[str, list[Comparison]] = {}
    caught = True
    with progress("lookahead", 3 * len(names)) as step:
        for place, name in enumerate(names):
            step(3 * place, f"features of {name}")
            bars = bars_of(found, name)
            leaking[name] = leaks(bars, shipped)
            step(3 * place + 1, f"planted leak in {name}")
            caught &= {
                leak.test for leak in leaks(bars, with_canary, 2) if leak.column == CANARY
            } == {
                "prefix",
                "perturbation",
            }
            step(3 * place + 2, f"folds of {name}")
            plan = calendar_folds(
                found.config.folds, bars.time, bars.session, found.always_open(name)
            )
            whole = [fold for fold in plan if fold.status == "complete"]
            compared[name] = [
                row
                for fold in ([whole[0], whole[-1]] if len(whole) > 1 else whole)
                for row in fold_comparisons(found.config, name, bars, fold, device)
            ]
    moved = 0
    for name in names:
        for leak in leaking[name]:
            say(
                f"FAIL {name}: {leak.column} of bar {leak.bar} changes when bars from "
                f"{leak.cut} on {'are cut off' if leak.test == 'prefix' else 'change'}"
            )
        table(
            ("fold", "what", "bars changed from", "compared", "different"),
            [(r.fold, r.what, r.cut, f"{r.compared:,}", r.different) for r in compared[name]],
            f"{name}: the chain under changed futures",
        )
        moved += len(leaking[name]) + sum(not row.ok for row in compared[name])
    write_figures(
        json,
        {
            "leaks": {name: [asdict(leak) for leak in rows] for name, rows in leaking.items()},
            "folds": {name: [asdict(row) for row in rows] for name, rows in compared.items()},
            "planted_leak_caught": caught,
        },
    )
    verdict = "nothing sees the future" if not moved else f"{moved} things see the future"
    say(f"lookahead: {verdict}; planted leak {'caught' if caught else 'NOT CAUGHT'}")
    raise typer.Exit(0 if caught and not moved else 1)


def controls(
    quick: Annotated[
        bool, typer.Option("--quick", help="AR(1) of 0.3 instead of 0.15; what CI runs.")
    ] = False,
    seeds: Annotated[int, typer.Option(min=2, help="Seeds of each control.")] = 5,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="KIND", show_default=False, help="positive, negative, leak, shuffled."
        ),
    ] = None,
    profile: Profile = None,
    overrides: Overrides = None,
    json: JsonFile = None,
) -> None:
    """Train on markets whose edge is known; exit 1 when an answer is wrong.

    A planted AR(1) must be found, nothing may be found on a martingale, a feature that leaks the
    next difference must be exploited almost fully, the same feature shuffled must be worthless.
    """
    from backtest.controls import FULL, KINDS, QUICK, judge
    from backtest.errors import ConfigError
    from opencl.controls import ControlSpec, run_control
    from pipelines.runner import runner

    if only is not None and only not in KINDS:
        raise ConfigError(f"--only {only}: choose one of {', '.join(KINDS)}")
    settings = configuration(None, profile, overrides)
    kinds = [kind for kind in KINDS if only in (None, kind)]
    size = QUICK if quick else FULL
    verdicts = []
    outcomes: list[Outcome] = []
    with progress("controls", len(kinds) * seeds) as step, runner(settings.runtime) as trials:
        for kind in kinds:
            specs = [ControlSpec(kind, size, s, settings.runtime.device) for s in range(seeds)]
            done = []
            for outcome in trials.imap(run_control, specs):
                done.append(outcome)
                step(len(outcomes) + len(done), f"{kind}, seed {outcome.seed}")
            outcomes += done
            verdicts.append(judge(kind, done))
    table(
        ("control", "seed", "net PnL a bar", "gross", "Sharpe", "low", "high", "of the best"),
        [
            (
                o.kind,
                o.seed,
                o.pnl_per_bar,
                o.gross_per_bar,
                o.sharpe.value,
                o.sharpe.low,
                o.sharpe.high,
                f"{o.oracle_share:.1%}",
            )
            for o in outcomes
        ],
    )
    for verdict in verdicts:
        say(verdict.text)
    write_figures(
        json,
        {
            "size": asdict(size),
            "outcomes": [asdict(o) for o in outcomes],
            "verdicts": [asdict(v) for v in verdicts],
        },
    )
    passed = sum(v.passed for v in verdicts)
    say(f"controls: {passed} of {len(verdicts)} hold over {seeds} seeds")
    raise typer.Exit(0 if passed == len(verdicts) else 1)
