"""Pictures of the UI: matplotlib drawings as base64 PNG in Markdown."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any

import dagster as dg
import numpy as np

from backtest.record import Line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = np.ndarray[Any, np.dtype[Any]]
DPI = 80
MOST_POINTS = 1500  # of a line; more cannot be seen
# Colours of a slot's states and of what a search ends in.
STATES = {
    "active": "tab:green",
    "protected": "tab:blue",
    "inactive": "tab:orange",
    "candidate": "tab:purple",
    "free": "lightgrey",
}
SEARCHES = {"hits": "tab:green", "abstentions": "tab:orange", "misses": "lightgrey"}


@contextmanager
def picture(rows: int = 1, height: float = 3.2) -> Iterator[tuple[list[Axes], list[str]]]:
    """Yield axes to draw on and a list that receives the Markdown at the end."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # Figure, not pyplot: no state outlives the picture, and no window system is asked for
    figure = Figure(figsize=(9, height * rows))
    FigureCanvasAgg(figure)
    # fixed margins: a layout engine draws everything twice
    figure.subplots_adjust(0.1, 0.19 / rows, 0.98, 1 - 0.12 / rows, hspace=0.22)
    axes = list(np.atleast_1d(figure.subplots(rows, 1)))
    for ax in axes:
        ax.grid(alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
    out: list[str] = []
    yield axes, out
    stream = BytesIO()
    figure.savefig(stream, format="png", dpi=DPI)
    out.append(f"![plot](data:image/png;base64,{base64.b64encode(stream.getvalue()).decode()})")


def thinned(x: Array, y: Array) -> tuple[Array, Array]:
    """Return at most `MOST_POINTS` of a line, the last one always."""
    step = max(1, -(-len(x) // MOST_POINTS))
    places = np.unique(np.append(np.arange(0, len(x), step), len(x) - 1)) if len(x) else slice(0)
    return x[places], y[places]


def equity_plot(lines: Sequence[Line], title: str) -> dg.MarkdownMetadataValue:
    """Draw equity of policies and baselines, and the drawdown of the policies."""
    with picture(2, 2.7) as (axes, out):
        top, bottom = axes
        for line in lines:
            x, y = thinned(line.time, line.equity)
            if not line.learned:
                top.plot(x, y, "--", label=line.label, linewidth=1.0, alpha=0.8)
                continue
            top.plot(x, y, label=line.label, linewidth=1.6, zorder=3)
            peak = np.maximum.accumulate(line.equity)
            _, below = thinned(line.time, line.equity / np.where(peak > 0, peak, np.nan) - 1)
            bottom.plot(x, 100 * below, linewidth=1.3)
        top.set_title(title)
        top.set_ylabel("equity, currency")
        top.yaxis.set_major_formatter("{x:,.0f}")
        if lines:
            top.legend(fontsize="small", ncols=2)
        bottom.set_ylabel("drawdown, %")
    return dg.MetadataValue.md(out[0])


def learning_curves(
    curves: Mapping[str, Sequence[Mapping[str, Any]]], title: str
) -> dg.MarkdownMetadataValue:
    """Draw loss and Sharpe (train dashed, validation full) by epoch, one colour a seed."""
    from matplotlib.ticker import MaxNLocator

    with picture(2, 2.5) as (axes, out):
        loss, sharpe = axes
        for place, (label, rows) in enumerate(curves.items()):
            colour = f"C{place % 10}"
            epochs = [row["epoch"] for row in rows]
            loss.plot(epochs, column(rows, "loss"), "o-", color=colour, label=label, ms=3)
            sharpe.plot(epochs, column(rows, "validation_sharpe"), "o-", color=colour, ms=3)
            sharpe.plot(epochs, column(rows, "train_sharpe"), "--", color=colour, alpha=0.7)
        loss.set_title(title)
        loss.set_ylabel("loss, nats")
        loss.legend(fontsize="small", ncols=2)
        sharpe.set_ylabel("Sharpe: validation full,\ntrain dashed")
        sharpe.set_xlabel("epoch")
        for ax in axes:
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return dg.MetadataValue.md(out[0])


def column(rows: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    """Return a column with NaN where a figure is undefined."""
    return [float("nan") if row[name] is None else float(row[name]) for row in rows]


def price_plot(time: Array, close: Array, title: str) -> dg.MarkdownMetadataValue:
    """Draw closes, points."""
    with picture(1, 2.7) as ((ax,), out):
        ax.plot(*thinned(time, close), linewidth=1.0)
        ax.set_title(title)
        ax.set_ylabel("close, points")
    return dg.MetadataValue.md(out[0])


def occupancy_plot(skills: Sequence[Mapping[str, Any]], title: str) -> dg.MarkdownMetadataValue:
    """Draw how many slots of each bank are in which state; rows of table skill."""
    names = banks_of(skills)
    found = [((row["bank"], row["seed"]), row["state"]) for row in skills]
    counts = {state: [found.count((name, state)) for name in names] for state in STATES}
    with picture(1, 2.7) as ((ax,), out):
        stacked_bars(ax, names, counts, STATES)
        ax.set_ylabel("slots")
        ax.set_title(title, loc="left")
    return dg.MetadataValue.md(out[0])


def utility_plot(skills: Sequence[Mapping[str, Any]], title: str) -> dg.MarkdownMetadataValue:
    """Draw the utility of every skill against its uses, one colour a bank and seed."""
    with picture(1, 2.7) as ((ax,), out):
        for name in banks_of(skills):
            own = [
                row
                for row in skills
                if (row["bank"], row["seed"]) == name and row["state"] != "free"
            ]
            uses = [row["uses"] for row in own]
            ax.plot(uses, column(own, "utility"), "o", label=f"{name[0]} {name[1]}", alpha=0.8)
        ax.axhline(0, color="grey", linewidth=0.8)
        ax.set_xscale("symlog")
        ax.set_xlim(left=-0.5)
        ax.set_xlabel("uses, episode-steps")
        ax.set_ylabel("utility, sd of PnL")
        ax.set_title(title, loc="left")
        if len(ax.lines) > 1:
            ax.legend(fontsize="small", ncols=2)
    return dg.MetadataValue.md(out[0])


def hit_rate_plot(stats: Sequence[Mapping[str, Any]], title: str) -> dg.MarkdownMetadataValue:
    """Draw what the searches of each bank ended in; rows of table bank_stat."""
    names = banks_of(stats)
    value = {((row["bank"], row["seed"]), row["name"]): row["value"] for row in stats}
    counts = {kind: [value.get((name, kind)) or 0.0 for name in names] for kind in SEARCHES}
    total = [sum(column) or 1.0 for column in zip(*counts.values(), strict=True)]
    shares = {
        kind: [n / whole for n, whole in zip(found, total, strict=True)]
        for kind, found in counts.items()
    }
    with picture(1, 2.7) as ((ax,), out):
        stacked_bars(ax, names, shares, SEARCHES)
        ax.set_ylabel("share of searches")
        ax.set_ylim(0, 1)
        ax.set_title(title, loc="left")
    return dg.MetadataValue.md(out[0])


def stacked_bars(
    ax: Axes,
    names: Sequence[tuple[str, int]],
    parts: Mapping[str, Sequence[float]],
    colours: Mapping[str, str],
) -> None:
    """Draw a bar for each bank and seed, its parts on top of one another."""
    below = np.zeros(len(names))
    for label, part in parts.items():
        ax.bar(range(len(names)), part, bottom=below, label=label, color=colours[label], width=0.6)
        below += part
    ax.set_xticks(range(len(names)), [f"{bank} {seed}" for bank, seed in names])
    ax.set_xlabel("bank and seed")
    # beside the title: a bar may be as high as the picture
    place = {"loc": "lower right", "bbox_to_anchor": (1.0, 0.98), "borderaxespad": 0.0}
    ax.legend(fontsize="small", ncols=len(parts), frameon=False, **place)


def banks_of(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, int]]:
    """Return the banks of rows as (bank, seed), in order."""
    return sorted({(row["bank"], row["seed"]) for row in rows})
