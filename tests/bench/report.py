"""A run of the benchmarks as a table for people and as plain values for JSON."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from opencl.devices import Device
from tests.bench.rows import Row

LOAD = os.getloadavg()[0]  # processes that wanted a core in the minute before this one began
Run = dict[str, Any]  # what one JSON file holds: device, time, command, rows by part
PREFIXES = ((1e9, 1e9, " G"), (1e6, 1e6, " M"), (1e4, 1e3, " k"))  # from, factor, letter


def command(arguments: Sequence[str], module: str = "tests.bench") -> str:
    """Return the command that measures the same again; where its output goes is no part of it."""
    kept = " ".join([f"python -m {module}", *arguments])
    return re.sub(r" --(json|plots)[ =]\S+", "", kept)


def figures(device: Device, parts: dict[str, list[Row]]) -> Run:
    """Return everything that was measured as plain values."""
    return {
        "device": device.describe(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(sys.argv[1:]),
        "load": round(LOAD, 1),
        "rows": [{"part": part} | row.plain() for part, rows in parts.items() for row in rows],
    }


def show(run: Run) -> None:
    """Print the table."""
    from rich.console import Console
    from rich.table import Table

    device = run["device"]
    title = f"{device['name']} ({device['platform']}), {run['time'][:10]}: {run['command']}"
    table = Table(title=title, title_justify="left")
    for name in ("what", "figure", "unit", "detail"):
        table.add_column(name, justify="right" if name == "figure" else "left")
    for row in run["rows"]:
        table.add_row(row["name"], scaled(row["figure"]), row["unit"], detail(row))
    Console(width=None if sys.stdout.isatty() else 170).print(table)


def detail(row: Run) -> str:
    """Return how a row was measured, its share of the roofline first."""
    return "; ".join(part for part in (row["roofline"], row["detail"]) if part)


def scaled(figure: float | None) -> str:
    """Return a rate with four digits: 52.1 G, 340 M, 95 k; a dash for what is missing."""
    if figure is None:
        return "-"
    for least, factor, letter in PREFIXES:
        if figure >= least:
            return f"{figure / factor:,.4g}{letter}"
    return f"{figure:,.4g}"


def pipe_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
