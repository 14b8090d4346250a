"""What the command line prints: tables, notes, progress; bars that move only on a terminal.

rich is imported inside functions: `skillwalk --help` must not wait for it.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from backtest.errors import ConfigError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PLAIN_WIDTH = 10_000  # columns; without a terminal nothing is wrapped
QUIET_SECONDS = 10.0  # between two plain progress lines


def say(text: str = "") -> None:
    """Print a line as it is: no markup, no wrapping."""
    print(text, flush=True)


def program() -> str:
    """Return how this program is called from here: its name, or its path when not on PATH."""
    name = Path(sys.argv[0]).name
    if shutil.which(name) is not None or not Path(sys.argv[0]).is_file():
        return "skillwalk"
    return os.path.relpath(sys.argv[0])


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
    """Write the figures of a command as JSON and say where; NaN and infinity become null.

    Raises:
        ConfigError: the file cannot be written.
    """
    if path is None:
        return
    from backtest.lake import write_json
    from backtest.queries import json_value

    with written("--json", path):
        write_json(path, json_value(dict(figures)))
    say(f"figures written to {path}")


@contextmanager
def written(option: str, path: Path) -> Iterator[None]:
    """Name the option when a file that it asks for cannot be written.

    Raises:
        ConfigError: says why.
    """
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{option} {path}: cannot be written ({error.strerror})") from None


class Step(Protocol):
    """Reports progress, from any thread."""

    def __call__(self, done: float, what: str) -> None:
        """Report how much is done, counted like the total, and what is going on."""

    def note(self, text: str) -> None:
        """Print a line that stays."""


@contextmanager
def progress(title: str, total: float) -> Iterator[Step]:
    """Yield what reports progress; notes and bars go to standard error.

    On a terminal a bar moves; elsewhere a line is printed when at least `QUIET_SECONDS` have
    passed since the last one.
    """
    if not sys.stderr.isatty():
        yield Lines(title, total)
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
        TextColumn("{task.fields[title]}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[what]}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total, title=title, what="")
        yield Bar(bar, task)


class Bar:
    """Progress as a bar of rich."""

    def __init__(self, bar: Progress, task: TaskID) -> None:
        """Move the bar of one task."""
        self._bar, self._task = bar, task

    def __call__(self, done: float, what: str) -> None:
        """Move the bar."""
        self._bar.update(self._task, completed=done, what=what)

    def note(self, text: str) -> None:
        """Print a line above the bar."""
        self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)


class Lines:
    """Progress as plain lines, the first and last ones always."""

    def __init__(self, title: str, total: float) -> None:
        """Print under a title; a total of 1 is shown as percent."""
        self._title, self._total = title, total
        self._last = -QUIET_SECONDS

    def __call__(self, done: float, what: str) -> None:
        """Print a line, unless the last one was just now."""
        now = time.monotonic()
        if done < self._total and now - self._last < QUIET_SECONDS:
            return
        self._last = now
        share = f"{done:.0%}" if self._total == 1 else f"{done:g} of {self._total:g}"
        self.note(f"{self._title}: {share}, {what}")

    def note(self, text: str) -> None:
        """Print a line."""
        print(text, file=sys.stderr, flush=True)
