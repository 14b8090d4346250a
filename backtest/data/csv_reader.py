"""Text files with columns, plain or gzip: header, lines and blocks. Times and numbers stay text."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from backtest.config import CsvFormat
from backtest.data.bars import Ints
from backtest.data.issues import Findings
from backtest.data.raw import Source, Unreadable
from backtest.errors import DataError

BLOCK_BYTES = 8 << 20
HEAD_BYTES = 1 << 16
MAX_RAGGED = 10_000
DELIMITERS = {";": ";", "\t": "\\t", "|": "|", ",": ","}


def open_csv(path: Path, layout: CsvFormat, findings: Findings) -> Source:
    """Open a CSV file; its first line decides the number of columns.

    Raises:
        DataError: not text, no header where one is declared, one column only.
    """
    zipped = path.name.lower().endswith(".gz")
    lines = head(path, zipped)
    first = next((i for i, line in enumerate(lines) if line.strip()), None)
    if first is None:
        raise DataError(f"{path}: the file holds blank lines only; export or copy it again")
    cells = next(csv.reader([lines[first]], delimiter=layout.delimiter))
    check_delimiter(path, cells, layout, findings)
    if layout.header and any(is_number(cell, layout.decimal) for cell in cells):
        places = "{ time = 0, open = 1, high = 2, low = 3, close = 4, volume = 5 }"
        raise DataError(
            f"{path}: row {first + 1} holds data, not a header; set {findings.key('csv.header')} "
            f"= false and {findings.key('csv.columns')}, such as {places}"
        )
    start = first + 1 if layout.header else first
    ragged: list[Unreadable] = []

    def blocks(places: Sequence[int]) -> Iterator[Mapping[int, Any]]:
        ragged.clear()
        yield from stream(path, zipped, layout.delimiter, len(cells), start, places, ragged)

    def rows(position: Ints) -> Ints:
        # The stream leaves ragged lines out: count those before each line back in.
        lines = np.sort(np.array([damage.row for damage in ragged], np.int64)) - start - 1
        good_before = lines - np.arange(len(lines))
        return position + start + 1 + np.searchsorted(good_before, position, side="right")

    names = cells if layout.header else [""] * len(cells)
    return Source(names, layout.header, blocks, rows, ragged)


def stream(
    path: Path,
    zipped: bool,
    delimiter: str,
    width: int,
    start: int,
    places: Sequence[int],
    ragged: list[Unreadable],
) -> Iterator[Mapping[int, Any]]:
    """Yield the text columns at the places, block by block, from the line after `start`."""
    import pyarrow as pa
    import pyarrow.csv as pacsv

    def note(line: Any) -> str:
        found = f"{line.actual_columns} columns instead of {width}"
        ragged.append(Unreadable(line.number, f"{found} ({line.text[:40]!r})"))
        if len(ragged) > MAX_RAGGED:
            return "error"
        return "skip"

    names = [f"c{place}" for place in range(width)]
    try:
        with pa.input_stream(str(path), compression="gzip" if zipped else None) as file:
            reader = pacsv.open_csv(
                file,
                pacsv.ReadOptions(
                    use_threads=False,  # only then are line numbers known
                    block_size=BLOCK_BYTES,
                    column_names=names,
                    skip_rows=start,
                ),
                pacsv.ParseOptions(
                    delimiter=delimiter, ignore_empty_lines=False, invalid_row_handler=note
                ),
                pacsv.ConvertOptions(
                    column_types={name: pa.string() for name in names},
                    include_columns=[names[place] for place in places],
                    strings_can_be_null=False,
                ),
            )
            for batch in reader:
                yield dict(zip(places, batch.columns, strict=True))
    except pa.ArrowInvalid as error:
        if "Empty CSV" in str(error):
            return
        if len(ragged) > MAX_RAGGED:
            raise DataError(
                f"{path}: more than {MAX_RAGGED:,} rows do not have {width} columns, the first is "
                f"row {ragged[0].row}: {ragged[0].what}; check delimiter and file"
            ) from None
        raise DataError(f"{path}: not readable as text with columns: {error}") from None
    except OSError as error:
        raise DataError(f"{path}: truncated or damaged ({error}); copy the file again") from None


def head(path: Path, zipped: bool) -> list[str]:
    """Return the first lines of the file; the last of them may be cut."""
    try:
        with gzip.open(path) if zipped else path.open("rb") as file:
            start = file.read(HEAD_BYTES)
    except (OSError, EOFError) as error:
        raise DataError(f"{path}: truncated or damaged ({error}); copy the file again") from None
    if b"\x00" in start:
        raise DataError(f"{path}: binary data, not text; give CSV in UTF-8")
    return start.decode("utf-8-sig", errors="replace").splitlines()


def check_delimiter(path: Path, cells: list[str], layout: CsvFormat, findings: Findings) -> None:
    """Refuse a first line of one cell: the declared delimiter is not the file's."""
    if len(cells) > 1:
        return
    line = cells[0] if cells else ""
    other = [shown for mark, shown in DELIMITERS.items() if line.count(mark) >= 4]
    cure = f'set {findings.key("csv.delimiter")} = "{other[0]}"' if other else "check the file"
    raise DataError(
        f"{path}: row 1 has one column only when split at {layout.delimiter!r}: "
        f"{line[:60]!r}; {cure}"
    )


def is_number(cell: str, decimal: str) -> bool:
    """Return whether a cell of a header would be read as a number."""
    try:
        return bool(np.isfinite(float(cell.replace(decimal, "."))))
    except ValueError:
        return False
