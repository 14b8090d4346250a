"""`skillwalk simulate`: positions that somebody else decided, through the same market and costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.commands.options import (
    LAKE,
    ConfigOption,
    JsonFile,
    LakeFolder,
    Overrides,
    Profile,
    experiment,
    instruments,
)
from pipelines.console import say, table, write_figures, written

if TYPE_CHECKING:
    from opencl.strategies import Scores
    from opencl.target_run import Outcome

EXAMPLE = (
    "Example: skillwalk simulate targets.csv --profile smoketest --out equity.parquet, where "
    "targets.csv begins with bar,mine or time,mine, or is bar,strategy,position"
)
MOST_EXACT = 32  # strategies whose account is kept bar by bar; of more there are figures
BEST = 20  # of many, shown
SHOWN = ("net_return", "cagr", "max_drawdown", "n_trades", "n_open", "exposure", "turnover")
EQUITY = ("bar", "time", "position", "close", "fill_price", "gross", "cost", "pnl", "equity")


def simulate(
    targets: Annotated[
        Path,
        typer.Argument(
            metavar="TARGETS",
            help="CSV or Parquet: column bar, or time (UTC close of the decision bar), and one "
            "column of target positions in units for every strategy; or bar, strategy, position.",
        ),
    ],
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            "--strategy",
            metavar="NAME",
            show_default=False,
            help="Account for this strategy, again for more.",
        ),
    ] = None,
    instrument: Annotated[
        str | None,
        typer.Option(
            "--instrument", metavar="NAME", show_default=False, help="Without it the first one."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            show_default=False,
            help=f"Write equity by bar as Parquet; of more than {MOST_EXACT} strategies, figures.",
        ),
    ] = None,
    config: ConfigOption = None,
    profile: Profile = None,
    overrides: Overrides = None,
    lake: LakeFolder = LAKE,
    json: JsonFile = None,
) -> None:
    """Trade target positions over ingested bars and show equity and metrics.

    A target stands until the next row. It is decided at the close of its bar and filled by a market
    order as market.fill says. The account is kept in float64; of more than 32 strategies the
    device's own figures are shown, and --strategy accounts for some of them.
    """
    from backtest.data.targets import TargetFile
    from opencl.devices import select
    from opencl.strategies import score
    from opencl.target_run import run_targets

    found = experiment(config, profile, overrides, lake)
    name = instruments(found.config, instrument)[0]
    bars = found.bars(name)
    settings = found.instrument(name)
    wanted = TargetFile(targets, bars, settings.max_position)
    names = strategy or wanted.names
    device = select(found.config.runtime.device)
    few = len(names) <= MOST_EXACT
    outcomes = run_targets(found.config, bars, wanted.read(names), device) if few else []
    many = wanted if strategy is None else wanted.read(names)
    scores = None if few else score(found.config, bars, many, device)
    say(
        f"{name}: bars {wanted.first_bar + 1} to {wanted.first_bar + wanted.steps}, "
        f"{wanted.steps:,} decisions on {device.name}, fill {found.config.market.fill}, costs of "
        f"[instruments.{name}]"
    )
    if wanted.ignored:
        say("the target at the last bar is not traded: no bar follows it")
    if scores is None:
        show(outcomes, found.config.evaluation.confidence)
    else:
        show_scores(scores)
    if out is not None:
        with written("--out", out):
            write_scores(out, scores) if scores is not None else write_equity(out, outcomes)
        say(f"{'equity' if few else 'figures'} written to {out}")
    figures = simulate_figures(name, outcomes) if scores is None else score_figures(name, scores)
    write_figures(json, figures)


def show_scores(scores: Scores) -> None:
    """Print the best of many strategies by their Sharpe ratio."""
    import numpy as np

    from backtest.figures import Figure, counted, number, percent, plain

    order = np.argsort(-np.nan_to_num(scores["sharpe"], nan=-np.inf), kind="stable")[:BEST]
    shown = (
        "final_equity",
        "net_return",
        "sharpe",
        "max_drawdown",
        "n_trades",
        "exposure",
        "costs",
    )
    rows = []
    for place in order:
        value = {name: float(scores[name][place]) for name in shown}
        figure = {name: Figure(None if np.isnan(x) else x) for name, x in value.items()}
        rows.append(
            (
                scores.names[place],
                f"{value['final_equity']:,.2f}",
                percent(figure["net_return"]),
                plain(figure["sharpe"]),
                percent(figure["max_drawdown"]),
                number(figure["n_trades"]),
                percent(figure["exposure"], digits=0),
                f"{value['costs']:,.2f}",
            )
        )
    columns = ("", "final equity", "net return", "Sharpe", "max drawdown", "trades", "exposure")
    title = f"the {len(rows)} best of {len(scores.names):,} strategies"
    table((*columns, "costs"), rows, title)
    say(
        f"figures of the device, float32, {counted(scores.blocks, 'block')} of "
        f"{scores.planned / 2**20:,.0f} MiB or less; the best of many is lucky: choose on one span "
        "and judge on another"
    )


def write_scores(path: Path, scores: Scores) -> None:
    """Write one row a strategy."""
    import pyarrow as pa

    from backtest.lake import write_table

    columns = {n: pa.array(values, from_pandas=True) for n, values in scores.items()}  # NaN: null
    write_table(path, pa.table({"strategy": list(scores.names), **columns}))


def score_figures(name: str, scores: Scores) -> dict[str, Any]:
    """Return what `--json` writes of many strategies."""
    return {
        "instrument": name,
        "strategies": [
            {"name": strategy, **{n: float(values[i]) for n, values in scores.items()}}
            for i, strategy in enumerate(scores.names)
        ],
    }


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
