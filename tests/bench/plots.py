"""Pictures of runs: scaling curves, and us beside the peers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill
from typing import Any

from tests.bench.report import Run, scaled
from tests.bench.rows import TIMES

DECADES = 2000  # a wider axis is labelled at powers of ten alone
DPI = 110
WIDTH, HEIGHT = 9.0, 3.4  # inches; of a panel
LABELS = {"gpu": "GPU", "cpu": "CPU"}
STYLES = {"gpu": "-", "cpu": "--"}
PEERS = "bench_peers.png"
LABEL_WIDTH = 56  # characters

Lines = dict[tuple[str, str], list[tuple[float, float]]]  # points by device kind and series
Panels = dict[str, Lines]  # by unit


def draw(runs: Sequence[Run], folder: Path) -> list[Path]:
    """Draw what the runs hold into a folder; return the files.

    One picture for each axis of curves, with a panel for each unit, devices together, and one of
    the peers.
    """
    folder.mkdir(parents=True, exist_ok=True)
    drawn = [_curves(axis, panels, folder) for axis, panels in curves(runs).items()]
    bars = peers(runs)
    return [*drawn, _bars(bars, folder)] if bars else drawn


def file_name(axis: str) -> str:
    """Return the name of the picture of an axis."""
    return f"bench_{axis}.png"


def curves(runs: Sequence[Run]) -> dict[str, Panels]:
    """Return the lines by axis and unit; a curve of one point is none."""
    found: dict[str, Panels] = {}
    for run in runs:
        kind = run["device"]["kind"]
        for row in run["rows"]:
            if row["axis"] and row["figure"] is not None:
                lines = found.setdefault(row["axis"], {}).setdefault(row["unit"], {})
                lines.setdefault((kind, row["series"]), []).append((row["x"], row["figure"]))
    kept: dict[str, Panels] = {}
    for axis, panels in sorted(found.items()):
        for unit, lines in sorted(
            panels.items(), key=lambda panel: ("/s" not in panel[0], panel[0])
        ):
            long = {line: sorted(points) for line, points in lines.items() if len(points) > 1}
            if long:
                kept.setdefault(axis, {})[unit] = long
    return kept


def peers(runs: Sequence[Run]) -> list[tuple[str, str, float]]:
    """Return (what, device kind, how many times as fast we are), the largest last."""
    found = [
        (row["name"], run["device"]["kind"], row["figure"])
        for run in runs
        for row in run["rows"]
        if row["unit"] == TIMES and row["figure"] is not None
    ]
    return sorted(found, key=lambda bar: bar[2])


@contextmanager
def _picture(path: Path, heights: Sequence[float]) -> Iterator[list[Any]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # Figure, not pyplot: no state outlives the picture, and no window system is asked for
    figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)
    axes = list(grid[:, 0])
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    yield axes
    # no date or version in the file: equal figures give equal bytes
    figure.savefig(path, dpi=DPI, metadata={"Software": None})


def _curves(axis: str, panels: Panels, folder: Path) -> Path:
    from matplotlib.ticker import LogLocator, NullLocator

    path = folder / file_name(axis)
    heights = [max(HEIGHT, 0.8 + 0.19 * len(lines)) for lines in panels.values()]
    with _picture(path, heights) as axes:
        for ax, (unit, lines) in zip(axes, panels.items(), strict=True):
            series = list(dict.fromkeys(name for _, name in lines))
            for (kind, name), points in lines.items():
                ax.plot(
                    *zip(*points, strict=True),
                    STYLES[kind],
                    color=f"C{series.index(name) % 10}",
                    marker="os^"[series.index(name) // 10 % 3],
                    markersize=4,
                    label=f"{name} ({LABELS[kind]})",
                )
            ax.set(xscale="log", yscale="log", ylabel=unit)
            _decade(ax, [y for points in lines.values() for _, y in points])
            for direction, (low, high) in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
                # over many decades the labels between them would overlap
                between = (1, 2, 5) if high < DECADES * low else (1,)
                direction.set_major_locator(LogLocator(subs=between))
                direction.set_major_formatter(lambda value, _: scaled(value))
                direction.set_minor_locator(NullLocator())
            ax.grid(alpha=0.3)
            ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
        axes[-1].set_xlabel(axis)
    return path


def _decade(ax: Any, values: Sequence[float]) -> None:
    """Show a factor of ten at least: what hardly changes shall look flat."""
    low, high = min(values), max(values)
    if high < 10 * low:
        middle = (low * high) ** 0.5
        ax.set_ylim(middle / 10**0.5, middle * 10**0.5)


def _bars(bars: list[tuple[str, str, float]], folder: Path) -> Path:
    path = folder / PEERS
    labels = [fill(f"{what} ({LABELS[kind]})", LABEL_WIDTH) for what, kind, _ in bars]
    with _picture(path, [1 + 0.18 * sum(2 + label.count("\n") for label in labels)]) as (ax,):
        colours = ["C0" if kind == "gpu" else "C1" for _, kind, _ in bars]
        # from 1, as fast as the peer, to the right or to the left
        drawn = ax.barh(range(len(bars)), [x - 1 for *_, x in bars], left=1, color=colours)
        ax.set_yticks(range(len(bars)), labels, fontsize=8)
        ax.bar_label(
            drawn, [f" {x:,.0f}" if x >= 100 else f" {x:.3g}" for *_, x in bars], fontsize=8
        )
        ax.axvline(1, color="black", linewidth=0.8)
        ax.set(xscale="log", xlabel="times as fast as the peer")
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        ax.margins(x=0.15)
        ax.grid(alpha=0.3, axis="x")
    return path
