"""`skillwalk`: the command line. Exit codes: 0 ok, 1 a check failed, 2 usage or bad input.

Only typer is imported here; every command imports what it needs when it runs.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from backtest.errors import BacktestError
from pipelines.commands import compare, data, devices, market, run, store, ui

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

app.command(rich_help_panel=RUN, epilog=run.RUN_EXAMPLE)(run.run)
app.command(rich_help_panel=RUN, epilog=compare.EXAMPLE)(compare.ab)
app.command(rich_help_panel=RUN, epilog=data.EXAMPLE)(data.ingest)
app.command(rich_help_panel=RUN, epilog=market.SIMULATE_EXAMPLE)(market.simulate)
app.command(rich_help_panel=CHECK, epilog=run.FOLDS_EXAMPLE)(run.folds)
app.command(rich_help_panel=CHECK, epilog=market.AUDIT_EXAMPLE)(market.audit)
app.command(rich_help_panel=CHECK, epilog=devices.VERIFY_EXAMPLE)(devices.verify)
app.command(rich_help_panel=CHECK, epilog=devices.DEVICES_EXAMPLE)(devices.devices)
app.command(rich_help_panel=CHECK, epilog=devices.BENCH_EXAMPLE)(devices.bench)
app.command(rich_help_panel=LOOK, epilog=store.SQL_EXAMPLE)(store.sql)
app.command(rich_help_panel=LOOK, epilog=store.REPORT_EXAMPLE)(store.report)
app.command(rich_help_panel=LOOK, epilog=ui.EXAMPLE)(ui.ui)


def main() -> None:
    """Entry point of the console script."""
    app()
