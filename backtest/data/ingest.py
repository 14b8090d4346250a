"""One source in, clean bars and their issues out; on any error nothing is written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from backtest.config import CsvFormat, Instrument
from backtest.data import spacing as spacings
from backtest.data.bars import Bars, Ints, write_bars
from backtest.data.blocks import gather
from backtest.data.closing import Closes, bar_spacing, closes, unified
from backtest.data.columns import match
from backtest.data.csv_reader import open_csv
from backtest.data.example import LAYOUT, example
from backtest.data.issues import DataIssue, Findings, write_issues
from backtest.data.order_checks import increasing
from backtest.data.parquet_reader import open_parquet
from backtest.data.raw import PRICES, RawBars
from backtest.data.row_checks import check_rows
from backtest.data.series_checks import check_series
from backtest.data.session import ALWAYS
from backtest.data.source import kind
from backtest.data.spacing import Spacing
from backtest.data.synthetic import synthetic
from backtest.errors import ConfigError, DataError
from backtest.lake import Lake, atomic_write

ISSUES = ".issues"
COLUMNS = (*PRICES, "volume", "roll")
OWN = {name: name for name in ("time", *COLUMNS)}  # the columns of a bars file


@dataclass(frozen=True)
class Ingested:
    """What `ingest` made.

    Attributes:
        bars: the clean bars.
        issues: rows of `data_issue`.
        assumptions: sentences to print: what was taken for granted.
        path: the bars file; the issues lie beside it.
        source: what was read.
        spacing: distance of the bars, for `session.bars_per_year`.
    """

    bars: Bars
    issues: tuple[DataIssue, ...]
    assumptions: tuple[str, ...]
    path: Path
    source: str
    spacing: Spacing


def bars_path(out: Path, name: str) -> Path:
    """Return where the bars of an instrument lie in a lake."""
    return Lake(out).bars(name)


def issues_path(out: Path, name: str) -> Path:
    """Return where the issues of an instrument lie in a lake, beside its bars."""
    return Lake(out).issues(name)


def ingest(name: str, instrument: Instrument, out: Path) -> Ingested:
    """Read, check and write the bars of one instrument to `<out>/bars/<name>.parquet`.

    Raises:
        ConfigError: a declaration that cannot be right.
        DataError: every defect whose policy is error, each with row and cure, in one message.
    """
    if not re.fullmatch(r"[\w=^.+-]+", name) or name.startswith(".") or name.endswith(ISSUES):
        raise ConfigError(
            f"instrument {name!r}: its name becomes a file name; use letters, digits and ._=^+-, "
            f"no leading dot and no ending {ISSUES}"
        )
    findings = Findings(name, instrument.source, instrument.issues)
    raw, instrument = read(name, instrument, findings)
    bars, spacing = clean(raw, instrument, findings)
    path = bars_path(out, name)
    with atomic_write(path) as new_bars, atomic_write(issues_path(out, name)) as new_issues:
        write_bars(bars, new_bars)
        write_issues(findings.issues, new_issues)
    return Ingested(
        bars,
        tuple(findings.issues),
        tuple(issue.message for issue in findings.issues if issue.action == "assumed"),
        path,
        findings.source,
        spacing,
    )


def read(name: str, instrument: Instrument, findings: Findings) -> tuple[RawBars, Instrument]:
    """Return a source's rows, and the instrument with what the source itself declares."""
    if not instrument.source:
        raise ConfigError(
            f"{findings.key('source')} is empty; give a CSV or Parquet file, synthetic, "
            f"example:sp500 or example:nasdaq"
        )
    if instrument.source == "synthetic":
        return generated(instrument, findings)
    path, layout = Path(instrument.source).expanduser(), instrument.csv
    if instrument.source.startswith("example:"):
        path, layout = example(instrument.source.removeprefix("example:")), LAYOUT
        instrument = instrument.model_copy(update={"csv": layout, "bar": instrument.bar or "1d"})
    if kind(path) == "csv":
        source = open_csv(path, layout, findings)
    else:
        source = open_parquet(path)
        if source.closes:
            layout = CsvFormat(columns=OWN)
    columns = match(source.headers, layout.columns, findings, named=source.named)
    return gather(source, columns, layout, findings), instrument


def generated(instrument: Instrument, findings: Findings) -> tuple[RawBars, Instrument]:
    """Return the synthetic generator's rows: hourly unless declared, around the clock."""
    spacing = spacings.declared(instrument.bar or "1h", findings.key("bar"))
    if instrument.calendar != ALWAYS or spacing.unit == "mo":
        raise ConfigError(
            f"instruments.{findings.instrument}: synthetic bars are made around the clock, "
            f'without months; set calendar = "{ALWAYS}" and bar such as "1h"'
        )
    settled = instrument.model_copy(update={"bar": str(spacing), "calendar": ALWAYS})
    return synthetic(instrument.synthetic, spacing, findings.key("synthetic.start")), settled


def clean(raw: RawBars, instrument: Instrument, findings: Findings) -> tuple[Bars, Spacing]:
    """Check rows, order and series, and return the bars that the policies leave.

    Raises:
        DataError: all errors found, together.
    """
    raw, dated = unified(raw, instrument, findings)
    spacing = None
    try:
        spacing = bar_spacing(raw, instrument, findings)
    except DataError as error:
        findings.problem(str(error))
    raw, volume_known = check_rows(raw, findings)
    raw = raw.take(increasing(raw, findings))
    if spacing is None or not len(raw):
        findings.refuse()
        raise DataError(f"{findings.source}: the policies leave no row; correct the file")
    try:
        times = closes(raw.stamp, spacing, dated, instrument, findings, closed=raw.closes)
    except DataError as error:
        findings.problem(str(error))
        findings.refuse()
        raise
    check_clashes(times, raw.row, findings)
    keep = check_series(
        raw, times, adjustable=instrument.adjustable, volume_known=volume_known, findings=findings
    )
    findings.refuse()
    if not keep.any():
        raise DataError(f"{findings.source}: the policies leave no row; correct the file")
    raw = raw.take(keep)
    bars = Bars(
        instrument=findings.instrument,
        time=times.time[keep],
        session=times.session[keep].astype(np.int32),
        volume_known=volume_known,
        **{name: getattr(raw, name) for name in COLUMNS},
    )
    return bars, spacing


def check_clashes(times: Closes, row: Ints, findings: Findings) -> None:
    """Refuse bars that close together once their stamps are sessions, or the other way round."""
    clash = np.flatnonzero(np.diff(times.time) <= 0)
    if len(clash):
        findings.problem(
            f"row {row[clash[0] + 1]}: closes no later than row {row[clash[0]]}, both in session "
            f"{np.datetime64(int(times.session[clash[0]]), 'D')}; keep one bar of it, or correct "
            f"{findings.key('bar')}, csv.stamp or csv.timezone"
        )
