"""`skillwalk ingest`: a file or a configured source becomes clean bars in the lake."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backtest.errors import ConfigError
from pipelines.commands.options import (
    LAKE,
    ConfigOption,
    JsonFile,
    LakeFolder,
    Overrides,
    Profile,
    configuration,
)
from pipelines.console import say, table, write_figures

if TYPE_CHECKING:
    from backtest.config import Instrument
    from backtest.data.ingest import Ingested

EXAMPLE = (
    "Example: skillwalk ingest bars.csv --name EURUSD --delimiter ';' "
    "--columns time=0,open=1,high=2,low=3,close=4 --no-header --date-format '%Y%m%d %H%M%S' "
    "--timezone America/New_York --stamp open"
)


def text_option(help: str, metavar: str) -> Any:
    """Return a setting of the file's format; None leaves what the configuration says."""
    return typer.Option(metavar=metavar, show_default=False, help=help)


def ingest(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE",
            show_default=False,
            help="CSV or Parquet file, example:sp500 or example:nasdaq; without it the "
            "instruments of the experiment.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        text_option("Name of the instrument; without it the file's, or all instruments.", "NAME"),
    ] = None,
    delimiter: Annotated[str | None, text_option("Between two columns.", "CHAR")] = None,
    decimal: Annotated[str | None, text_option("Decimal sign, . or ,", "CHAR")] = None,
    header: Annotated[
        bool | None,
        typer.Option("--header/--no-header", show_default=False, help="Row 1 names the columns."),
    ] = None,
    columns: Annotated[
        str | None,
        text_option("time=Date,open=Open,...; places from 0 without a header.", "OURS=THEIRS,..."),
    ] = None,
    date_format: Annotated[
        str | None, text_option("strptime format, or epoch_s, epoch_ms.", "FORMAT")
    ] = None,
    timezone: Annotated[str | None, text_option("IANA name of the stamps' zone.", "ZONE")] = None,
    stamp: Annotated[
        str | None, text_option("The end of the bar that a time names: open or close.", "END")
    ] = None,
    calendar: Annotated[
        str | None, text_option("exchange_calendars name, or 24/7.", "CALENDAR")
    ] = None,
    bar: Annotated[str | None, text_option("Spacing, such as 1min, 1h, 1d.", "SPACING")] = None,
    config: ConfigOption = None,
    profile: Profile = None,
    overrides: Overrides = None,
    lake: LakeFolder = LAKE,
    json: JsonFile = None,
) -> None:
    """Read bars, check every row and write them to the lake, or refuse and write nothing.

    Prints what was taken for granted and every issue found. A relative SOURCE begins at the
    working folder, a relative source in a TOML file at that file's folder.
    """
    from backtest.data.ingest import ingest as read

    declared = {
        "delimiter": delimiter,
        "decimal": decimal,
        "header": header,
        "columns": column_map(columns) if columns else None,
        "date_format": date_format,
        "timezone": timezone,
        "stamp": stamp,
    }
    csv = {key: value for key, value in declared.items() if value is not None}
    changes = {k: v for k, v in {"calendar": calendar, "bar": bar}.items() if v is not None}
    figures = []
    for chosen, instrument in chosen_instruments(source, name, config, profile, overrides):
        settings = changed(instrument, source, csv, changes)
        found = read(chosen, settings, lake)
        show(found)
        if source is not None:
            say(toml_hint(chosen, settings))
        figures.append(ingest_figures(found))
    write_figures(json, {"instruments": figures})


def chosen_instruments(
    source: str | None,
    name: str | None,
    config: Path | None,
    profile: str | None,
    overrides: list[str] | None,
) -> list[tuple[str, Instrument]]:
    """Return names and settings of what to ingest.

    A bare file starts from the defaults, a shipped example from the shipped experiment.
    """
    from backtest.config import Instrument
    from backtest.data.source import stem

    if source is None:
        found = configuration(config, profile, overrides)
        if name is None:
            return [(n, found.instrument_settings(n)) for n in found.study.instruments]
        if name not in found.instruments and name not in found.study.instruments:
            known = dict.fromkeys((*found.study.instruments, *found.instruments))
            raise ConfigError(f"--name {name}: the experiment has {', '.join(known)}")
        return [(name, found.instrument_settings(name))]
    example = source.removeprefix("example:")
    chosen = name or (stem(Path(source)) if example == source else example.upper())
    if config is None and profile is None and not overrides and example == source:
        return [(chosen, Instrument())]
    return [(chosen, configuration(config, profile, overrides).instrument_settings(chosen))]


def changed(
    instrument: Instrument, source: str | None, csv: dict[str, Any], changes: dict[str, Any]
) -> Instrument:
    """Return the settings with what the command line declares.

    Raises:
        ConfigError: names the option and what is allowed.
    """
    from pydantic import ValidationError

    from backtest.config import Instrument, describe, located

    tables = instrument.model_dump()
    tables["csv"] |= csv
    tables |= changes
    if source is not None:
        tables["source"] = located(source, Path.cwd())
    try:
        return Instrument.model_validate(tables)
    except ValidationError as error:
        raise ConfigError(f"options of ingest: {describe(error)}") from None


def column_map(text: str) -> dict[str, str | int]:
    """Read `time=Date,open=2`; whole numbers are places from 0.

    Raises:
        ConfigError: a part without `=`.
    """
    found: dict[str, str | int] = {}
    for part in text.split(","):
        ours, separator, theirs = part.partition("=")
        if not separator or not ours.strip() or not theirs.strip():
            raise ConfigError(f"--columns {text}: {part!r} is not OURS=THEIRS, such as time=Date")
        theirs = theirs.strip()
        found[ours.strip()] = int(theirs) if theirs.isdigit() else theirs
    return found


def show(found: Ingested) -> None:
    """Print what came in, what was assumed and what was found."""
    import numpy as np

    bars = found.bars
    first, last = (np.datetime64(int(t), "ns").astype("datetime64[s]") for t in bars.time[[0, -1]])
    say(
        f"{bars.instrument}: {len(bars):,} bars of {found.spacing} from {found.source}, "
        f"{first}Z to {last}Z (closes), written to {found.path}"
    )
    for sentence in found.assumptions:
        say(f"assumed: {sentence}")
    issues = [issue for issue in found.issues if issue.action != "assumed"]
    if issues:
        table(
            ("issue", "first row", "rows", "action", "message"),
            [(i.kind, i.first_row, i.rows, i.action, i.message) for i in issues],
        )
    else:
        say("no issues")


def toml_hint(name: str, settings: Instrument) -> str:
    """Return the table that makes a study read the same file the same way."""
    import json

    given = settings.model_dump(exclude_defaults=True)
    csv = given.pop("csv", {})
    lines = [f"{key} = {json.dumps(value)}" for key, value in given.items()]
    lines += [
        f"csv.columns.{ours} = {json.dumps(theirs)}"
        for ours, theirs in (csv.pop("columns", None) or {}).items()
    ]
    lines += [f"csv.{key} = {json.dumps(value)}" for key, value in csv.items()]
    key = name if re.fullmatch(r"[\w-]+", name, re.ASCII) else json.dumps(name)
    shown = "\n".join(f"  {line}" for line in [f"[instruments.{key}]", *lines])
    return (
        f"To use it in a study, put this into a TOML file, with point_value, tick_size, "
        f"max_position and costs:\n{shown}"
    )


def ingest_figures(found: Ingested) -> dict[str, Any]:
    """Return what `--json` writes for one instrument."""
    bars = found.bars
    return {
        "instrument": bars.instrument,
        "source": found.source,
        "path": str(found.path),
        "bars": len(bars),
        "spacing": str(found.spacing),
        "first_close_ns": int(bars.time[0]),
        "last_close_ns": int(bars.time[-1]),
        "volume_known": bars.volume_known,
        "content_hash": bars.content_hash,
        "assumptions": list(found.assumptions),
        "issues": [asdict(issue) for issue in found.issues],
    }
