"""Pictures of runs: scaling curves, and us beside the peers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench.report import Run, scaled
from tests.bench.rows import TIMES

DPI = 110
WIDTH, HEIGHT = 8.0, 4.4  # inches
LABELS = {"gpu": "GPU", "cpu": "CPU"}
STYLES = {"gpu": "-", "cpu": "--"}


def draw(runs: Sequence[Run], folder: Path) -> list[Path]:
    """Draw what the runs hold into a folder; return the files.

    One picture for each axis and unit of a curve, devices together, and one of the peers.
    """
    folder.mkdir(parents=True, exist_ok=True)
    drawn = [_curves(axis, unit, lines, folder) for (axis, unit), lines in curves(runs).items()]
    bars = peers(runs)
    return [*drawn, _bars(bars, folder)] if bars else drawn


Lines = dict[tuple[str, str], list[tuple[float, float]]]


def curves(runs: Sequence[Run]) -> dict[tuple[str, str], Lines]:
    """Return points by (axis, unit) and (device kind, series); a curve of one point is none."""
    found: dict[tuple[str, str], Lines] = {}
    for run in runs:
        kind = run["device"]["kind"]
        for row in run["rows"]:
            if row["axis"] and row["figure"] is not None:
                lines = found.setdefault((row["axis"], row["unit"]), {})
                point = row["x"], row["figure"]
                lines.setdefault((kind, row["series"]), []).append(point)
    kept = {
        key: {line: sorted(points) for line, points in lines.items() if len(points) > 1}
        for key, lines in found.items()
    }
    return {key: lines for key, lines in sorted(kept.items()) if lines}


def peers(runs: Sequence[Run]) -> list[tuple[str, str, float]]:
    """Return (what, device kind, how many times as fast we are), the largest last."""
    found = [
        (row["name"], run["device"]["kind"], row["figure"])
        for run in runs
        for row in run["rows"]
        if row["unit"] == TIMES and row["figure"] is not None
    ]
    return sorted(found, key=lambda bar: bar[2])


def file_name(axis: str, unit: str) -> str:
    """Return the name of the picture of one axis and unit."""
    return f"bench_{axis}_{unit}.png".replace("/", "_per_").replace(" ", "_")


@contextmanager
def _picture(path: Path, height: float = HEIGHT) -> Iterator[Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # Figure, not pyplot: no state outlives the picture, and no window system is asked for
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    ax = figure.subplots()
    ax.spines[["top", "right"]].set_visible(False)
    yield ax
    # no date or version in the file: equal figures give equal bytes
    figure.savefig(path, dpi=DPI, metadata={"Software": None})


def _curves(axis: str, unit: str, lines: Lines, folder: Path) -> Path:
    path = folder / file_name(axis, unit)
    series = list(dict.fromkeys(name for _, name in lines))
    with _picture(path, HEIGHT + 0.1 * len(lines)) as ax:
        for (kind, name), points in lines.items():
            ax.plot(
                *zip(*points, strict=True),
                STYLES[kind],
                color=f"C{series.index(name) % 10}",
                marker="o",
                markersize=4,
                label=f"{name} ({LABELS[kind]})",
            )
        ax.set(xscale="log", yscale="log", xlabel=axis, ylabel=unit)
        for direction in (ax.xaxis, ax.yaxis):
            direction.set_major_formatter(lambda value, _: scaled(value))
            direction.set_minor_formatter(lambda value, _: "")
        ax.grid(alpha=0.3)
        ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return path


def _bars(bars: list[tuple[str, str, float]], folder: Path) -> Path:
    path = folder / "bench_peers.png"
    with _picture(path, 1 + 0.3 * len(bars)) as ax:
        labels = [f"{what} ({LABELS[kind]})" for what, kind, _ in bars]
        colours = ["C0" if kind == "gpu" else "C1" for _, kind, _ in bars]
        # from 1, as fast as the peer, to the right or to the left
        drawn = ax.barh(range(len(bars)), [x - 1 for *_, x in bars], left=1, color=colours)
        ax.set_yticks(range(len(bars)), labels, fontsize=8)
        ax.bar_label(drawn, [f" {x:,.3g}" for *_, x in bars], fontsize=8)
        ax.axvline(1, color="black", linewidth=0.8)
        ax.set(xscale="log", xlabel="times as fast as the peer")
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        ax.margins(x=0.15)
        ax.grid(alpha=0.3, axis="x")
    return path
