"""`skillwalk sql` and `skillwalk report`: what the published store of a lake says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.commands.options import LAKE, InstrumentName, JsonFile, LakeFolder
from pipelines.console import say, table, write_figures

if TYPE_CHECKING:
    from backtest.summary import Summary

SQL_EXAMPLE = (
    'Example: skillwalk sql "SELECT variant, value, low, high FROM walk_forward_summary '
    'WHERE name = \'sharpe\'". Tables and views: skillwalk sql "SHOW TABLES".'
)
REPORT_EXAMPLE = "Example: skillwalk report --lake lake --json summary.json"


def sql(
    statement: Annotated[str, typer.Argument(metavar="SQL", help="One read-only statement.")],
    lake: LakeFolder = LAKE,
    json: Annotated[
        Path | None,
        typer.Option(
            "--json",
            metavar="FILE",
            show_default=False,
            help='Write {"columns": [...], "rows": [{...}]}, too.',
        ),
    ] = None,
    live: Annotated[
        bool,
        typer.Option("--live", help="Read the folds' files as they are now, while a study runs."),
    ] = False,
) -> None:
    """Query the results: one statement, read-only, times in UTC."""
    from backtest.lake import Lake
    from backtest.queries import query

    answer = query(Lake(lake), statement, live=live)
    cells = [["NULL" if v is None else v for v in row.values()] for row in answer.rows]
    table(answer.columns, cells)
    count = len(answer.rows)
    say(f"{count:,} row{'' if count == 1 else 's'}")
    write_figures(json, {"columns": answer.columns, "rows": answer.rows})


def report(
    lake: LakeFolder = LAKE,
    study: Annotated[
        str | None,
        typer.Option(
            metavar="ID", show_default=False, help="The study; without it the one that ran last."
        ),
    ] = None,
    instrument: InstrumentName = None,
    json: JsonFile = None,
) -> None:
    """Show a study's out-of-sample record beside its baselines, and what it is worth."""
    from backtest.lake import Lake
    from backtest.summary import summarize

    found = summarize(Lake(lake), study, instrument)
    show_summaries(found)
    folder = Lake(lake).reports(found[0].study_id)
    pages = sorted(folder.glob("*.html")) if folder.is_dir() else []
    for page in pages:
        say(f"report: {page}")
    write_figures(json, summary_figures(found))


def show_summaries(summaries: list[Summary]) -> None:
    """Print the table, the verdict and the ablation of every instrument of a study."""
    from backtest.ablation_table import ABLATION_COLUMNS
    from backtest.summary import COLUMNS
    from backtest.verdict import verdict

    for summary in summaries:
        say()
        table(COLUMNS, summary.table, summary.title)
        say(summary.note)
        say()
        say(verdict(summary))
        if summary.ablation is not None:
            say()
            table(ABLATION_COLUMNS, summary.ablation.table, summary.ablation.title)
            say(summary.ablation.note)
    say()


def summary_figures(summaries: list[Summary]) -> dict[str, object]:
    """Return what `--json` writes."""
    from backtest.verdict import verdict

    return {
        "study_id": summaries[0].study_id,
        "instruments": [{**s.as_json(), "verdict": verdict(s)} for s in summaries],
    }
