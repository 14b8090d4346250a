"""`skillwalk simulate`: positions that somebody else decided, through the same market and costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.commands.options import (
    LAKE,
    JsonFile,
    LakeFolder,
    Overrides,
    Profile,
    experiment,
    instruments,
)
from pipelines.console import say, table, write_figures, written

if TYPE_CHECKING:
    from opencl.target_run import Outcome

EXAMPLE = (
    "Example: skillwalk simulate targets.csv --profile smoketest --out equity.parquet, where "
    "targets.csv begins with bar,mine or time,mine"
)
SHOWN = ("net_return", "cagr", "max_drawdown", "n_trades", "n_open", "exposure", "turnover")
EQUITY = ("bar", "time", "position", "close", "fill_price", "gross", "cost", "pnl", "equity")


def simulate(
    targets: Annotated[
        Path,
        typer.Argument(
            metavar="TARGETS",
            help="CSV or Parquet: column bar, or time (UTC close of the decision bar), and one "
            "column of target positions in units for every strategy.",
        ),
    ],
    instrument: Annotated[
        str | None,
        typer.Option(
            "--instrument", metavar="NAME", show_default=False, help="Without it the first one."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", show_default=False, help="Write equity by bar as Parquet."
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", show_default=False, help="TOML file of the experiment."
        ),
    ] = None,
    profile: Profile = None,
    overrides: Overrides = None,
    lake: LakeFolder = LAKE,
    json: JsonFile = None,
) -> None:
    """Trade target positions over ingested bars and show equity and metrics.

    A target stands until the next row. It is decided at the close of its bar, filled by a market
    order as market.fill says, and the account is kept in float64.
    """
    from backtest.data.targets import read_targets
    from opencl.devices import select
    from opencl.target_run import run_targets

    found = experiment(config, profile, overrides, lake)
    name = instruments(found.config, instrument)[0]
    bars = found.bars(name)
    settings = found.instrument(name)
    wanted = read_targets(targets, bars, settings.max_position)
    device = select(found.config.runtime.device)
    outcomes = run_targets(found.config, bars, wanted, device)
    stop = wanted.first_bar + len(wanted)
    say(
        f"{name}: bars {wanted.first_bar + 1} to {stop}, {len(wanted):,} decisions on {device.name}"
        f", fill {found.config.market.fill}, costs of [instruments.{name}]"
    )
    if wanted.ignored:
        say("the target at the last bar is not traded: no bar follows it")
    show(outcomes, found.config.evaluation.confidence)
    if out is not None:
        with written("--out", out):
            write_equity(out, outcomes)
        say(f"equity written to {out}")
    write_figures(json, simulate_figures(name, outcomes))


def show(outcomes: list[Outcome], confidence: float) -> None:
    """Print one line a strategy."""
    from backtest.figures import Figure, number, percent, plain

    rows = []
    for outcome in outcomes:
        figure = {name: Figure(outcome.metrics[name]) for name in SHOWN}
        sharpe = Figure(outcome.sharpe.value, outcome.sharpe.low, outcome.sharpe.high)
        rows.append(
            (
                outcome.name,
                f"{outcome.account.equity[-1]:,.2f}",
                percent(figure["net_return"]),
                percent(figure["cagr"]),
                plain(sharpe, bounds=True),
                percent(figure["max_drawdown"]),
                number(figure["n_trades"]),
                number(figure["n_open"]),
                percent(figure["exposure"], digits=0),
                f"{outcome.account.cost.sum():,.2f}",
                f"{outcome.account.liquidation_cost:,.2f}",
            )
        )
    columns = ("", "final equity", "net return", "CAGR", "Sharpe", "max drawdown", "trades")
    table((*columns, "open", "exposure", "costs", "to close"), rows)
    say(
        f"Sharpe with its {confidence:.0%} interval over time; to close: what closing the last "
        "position would cost, not in the equity"
    )


def write_equity(path: Path, outcomes: list[Outcome]) -> None:
    """Write one row a strategy and bar."""
    import numpy as np
    import pyarrow as pa

    from backtest.lake import write_table

    parts = []
    for outcome in outcomes:
        account = outcome.account
        columns: dict[str, Any] = {"strategy": np.full(len(account.bar), outcome.name)}
        columns |= {name: getattr(account, name) for name in (*EQUITY, "drawdown")}
        columns["time"] = pa.array(account.time, pa.timestamp("ns", "UTC"))
        columns["fill_price"] = pa.array(account.fill_price, from_pandas=True)  # NaN: no fill
        parts.append(pa.table(columns))
    write_table(path, pa.concat_tables(parts))


def simulate_figures(name: str, outcomes: list[Outcome]) -> dict[str, Any]:
    """Return what `--json` writes."""
    return {
        "instrument": name,
        "strategies": [
            {
                "name": outcome.name,
                "final_equity": float(outcome.account.equity[-1]),
                "liquidation_cost": outcome.account.liquidation_cost,
                "device_difference": outcome.difference,
                "metrics": dict(outcome.metrics),
                "sharpe": {"low": outcome.sharpe.low, "high": outcome.sharpe.high},
            }
            for outcome in outcomes
        ],
    }
