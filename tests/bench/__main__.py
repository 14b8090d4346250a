"""All benchmarks by one command: `python -m tests.bench [--quick] [--device X] [--json FILE]`.

Prints one table; a figure without the device, the date and the command beside it means nothing,
so they are printed too and written to the JSON file.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

from opencl.devices import Device, select
from tests.bench.rows import Row

PARTS = (
    "market",
    "rollout",
    "scenario",
    "bank",
    "transfer",
    "learner",
    "evaluation",
    "memory",
    "walkforward",
    "features",
)  # modules here; each has `run`


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, about a minute")
    parser.add_argument("--device", default="auto", help="as runtime.device of an experiment")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--only", choices=PARTS, action="append", help="parts to measure")
    given = parser.parse_args()
    device = select(given.device)
    rows = []
    for part in given.only or PARTS:
        print(f"measuring {part} ...", file=sys.stderr, flush=True)
        rows += measure(part, device, given.quick)
    report(device, rows)
    if given.json:
        given.json.write_text(json.dumps(figures(device, rows), indent=2) + "\n")
    return 0


def measure(part: str, device: Device, quick: bool) -> list[Row]:
    """Return the rows of one part; a part whose packages are missing says so in its row."""
    try:
        module = import_module(f"tests.bench.{part}")
        if part != "features":
            rows: list[Row] = module.run(device, quick)
            return rows
        made = module.run(100_000 if quick else 2_000_000)
        return [Row(name, figure, unit, "one core of the CPU") for name, figure, unit in made]
    except ModuleNotFoundError as missing:
        return [Row(part, float("nan"), "", f"not measured: no module {missing.name}")]


def report(device: Device, rows: list[Row]) -> None:
    """Print the table."""
    from rich.console import Console
    from rich.table import Table

    when = datetime.now(UTC).date()
    title = f"{device.name} ({device.platform}), {when}: {command()}"
    table = Table(title=title, title_justify="left")
    table.add_column("what")
    table.add_column("figure", justify="right")
    table.add_column("unit")
    table.add_column("detail")
    for row in rows:
        table.add_row(row.name, scaled(row.figure), row.unit, row.detail)
    Console(width=None if sys.stdout.isatty() else 170).print(table)


def scaled(figure: float) -> str:
    """Return a rate with three digits or so: 52.1 G, 340 M, 9.5 k."""
    for factor, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if figure >= factor:
            return f"{figure / factor:,.4g}{letter}"
    return f"{figure:.4g}"


def command() -> str:
    """Return what was typed."""
    return " ".join(["python -m tests.bench", *sys.argv[1:]])


def figures(device: Device, rows: list[Row]) -> dict[str, object]:
    """Return everything as plain values."""
    return {
        "device": device.describe(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(),
        "rows": [
            vars(row) | {"figure": None if row.figure != row.figure else row.figure} for row in rows
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
