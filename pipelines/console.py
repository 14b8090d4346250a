"""What the command line prints: tables, notes, progress; bars that move only on a terminal.

rich is imported inside functions: `skillwalk --help` must not wait for it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PLAIN_WIDTH = 10_000  # columns; without a terminal nothing is wrapped
QUIET_SECONDS = 10.0  # between two plain progress lines

Step = Callable[[float, str], None]  # (done, what), done counted like `total`


def say(text: str = "") -> None:
    """Print a line as it is: no markup, no wrapping."""
    print(text, flush=True)


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> None:
    """Print a table; numbers, and text that looks like one, stand on the right.

    None is shown as an empty cell.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console() if sys.stdout.isatty() else Console(width=PLAIN_WIDTH, color_system=None)
    if title:
        console.print(Text(title, style="bold"), soft_wrap=True)
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    cells = [[shown(value) for value in row] for row in rows]
    for place, name in enumerate(columns):
        numeric = any(row[place] for row in cells) and all(
            row[place] == "" or row[place].lstrip("-+")[:1].isdigit() for row in cells
        )
        grid.add_column(
            Text(name), justify="right" if numeric else "left", overflow="fold", no_wrap=numeric
        )
    for row in cells:
        grid.add_row(*(Text(cell) for cell in row))
    console.print(grid)


def shown(value: object) -> str:
    """Return a value as a cell: floats to five digits, None as nothing."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.5g}" if abs(value) < 1e6 else f"{value:,.0f}"
    return str(value)


def write_figures(path: Path | None, figures: Mapping[str, Any]) -> None:
    """Write the figures of a command as JSON and say where; NaN and infinity become null."""
    if path is None:
        return
    from backtest.lake import write_json
    from backtest.queries import json_value

    write_json(path, json_value(dict(figures)))
    say(f"figures written to {path}")


@contextmanager
def progress(title: str, total: float) -> Iterator[Step]:
    """Yield a function that reports progress.

    On a terminal a bar moves; elsewhere a line is printed when at least `QUIET_SECONDS` have
    passed since the last one.
    """
    if not sys.stderr.isatty():
        yield plain_progress(title, total)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.fields[title]}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[what]}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total, title=title, what="")

        def step(done: float, what: str) -> None:
            bar.update(task, completed=done, what=what)

        yield step


def plain_progress(title: str, total: float) -> Step:
    """Return a reporter that writes lines to standard error, the first and last ones always."""
    last = -QUIET_SECONDS

    def step(done: float, what: str) -> None:
        nonlocal last
        now = time.monotonic()
        if done < total and now - last < QUIET_SECONDS:
            return
        last = now
        print(f"{title}: {done:g} of {total:g}, {what}", file=sys.stderr, flush=True)

    return step
