"""`skillwalk`: the command line. Exit codes: 0 ok, 1 a check failed, 2 usage or bad input.

Only typer is imported here; every command imports what it needs when it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from backtest.errors import BacktestError
from pipelines.commands import audit, compare, data, devices, folds, run, simulate, store, trust, ui

INTERRUPTED = 130  # 128 + SIGINT, as shells report it


class Commands(TyperGroup):
    """Turns the errors a user meets into one message; anything else keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        try:
            return super().invoke(ctx)
        except BacktestError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None


app = typer.Typer(
    name="skillwalk",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Begin with: skillwalk run --profile smoketest. Each command has --help with an "
    "example. Exit codes: 0 ok, 1 a check failed, 2 bad usage, configuration or data.",
)


def show_version(wanted: bool) -> None:
    """Print the version and stop."""
    if wanted:
        from importlib.metadata import version

        typer.echo(f"skillwalk {version('skillwalk')}")
        raise typer.Exit


@app.callback()
def skillwalk(
    version: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Walk-forward backtests of reinforcement-learning trading policies on OpenCL devices."""


RUN, CHECK, LOOK = "Run", "Check", "Look"
COMMANDS: tuple[tuple[str, Callable[..., None], str], ...] = (
    (RUN, run.run, run.EXAMPLE),
    (RUN, compare.ab, compare.EXAMPLE),
    (RUN, data.ingest, data.EXAMPLE),
    (RUN, simulate.simulate, simulate.EXAMPLE),
    (CHECK, folds.folds, folds.EXAMPLE),
    (CHECK, audit.audit, audit.EXAMPLE),
    (CHECK, devices.verify, devices.VERIFY_EXAMPLE),
    (CHECK, trust.lookahead, trust.LOOKAHEAD_EXAMPLE),
    (CHECK, trust.controls, trust.CONTROLS_EXAMPLE),
    (CHECK, devices.devices, devices.DEVICES_EXAMPLE),
    (CHECK, devices.bench, devices.BENCH_EXAMPLE),
    (LOOK, store.sql, store.SQL_EXAMPLE),
    (LOOK, store.report, store.REPORT_EXAMPLE),
    (LOOK, ui.ui, ui.EXAMPLE),
)


def paragraphs(text: str) -> str:
    """Return a docstring with every paragraph on one line; the terminal wraps it."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


for _panel, _command, _example in COMMANDS:
    _help = paragraphs(_command.__doc__ or "")
    app.command(rich_help_panel=_panel, help=_help, epilog=_example)(_command)


def main() -> None:
    """Entry point of the console script."""
    app()
