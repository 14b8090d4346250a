"""Small CSV files with one property each, and their ingestion."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from backtest.config import CsvFormat, Instrument, IssuePolicies
from backtest.data.ingest import Ingested, ingest

HEADER = "time,open,high,low,close,volume"
# Three days in a row, 24/7; rows 2, 3 and 4 of the file.
ROWS = (
    "2024-01-01,10,12,9,11,100",
    "2024-01-02,11,13,10,12,200",
    "2024-01-03,12,14,11,13,300",
)

Write = Callable[..., Path]
Ingest = Callable[..., Ingested]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file of lines and return its path."""

    def write_lines(
        rows: Sequence[str] = ROWS, header: str | None = HEADER, name: str = "X.csv"
    ) -> Path:
        path = tmp_path / name
        lines = ([] if header is None else [header]) + list(rows)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return write_lines


@pytest.fixture
def take_in(tmp_path: Path) -> Ingest:
    """Ingest a file as instrument X; keywords of issues and csv are given flat."""

    def run(path: Path | str, name: str = "X", **settings: Any) -> Ingested:
        issues = {k: settings.pop(k) for k in list(settings) if k in IssuePolicies.model_fields}
        csv = {k: settings.pop(k) for k in list(settings) if k in CsvFormat.model_fields}
        instrument = Instrument(
            source=str(path), issues=IssuePolicies(**issues), csv=CsvFormat(**csv), **settings
        )
        return ingest(name, instrument, tmp_path / "lake")

    return run


def kinds(result: Ingested) -> dict[str, tuple[int, int, str]]:
    """Return kind -> (first_row, rows, action), without assumptions."""
    return {
        issue.kind: (issue.first_row, issue.rows, issue.action)
        for issue in result.issues
        if issue.action != "assumed"
    }
