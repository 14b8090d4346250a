"""The report of a study: one HTML page an instrument, with the table, the verdict and the equity.

Pages need no network: the plotting library lies beside them, once.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from backtest.ablation_table import ABLATION_COLUMNS, Ablation
from backtest.lake import Lake, atomic_write, segment
from backtest.record import Line, fold_statuses, stitched
from backtest.summary import COLUMNS, Summary, summarize
from backtest.verdict import verdict

STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse}td,th{padding:.2rem .7rem;text-align:right}"
    "td:first-child,th:first-child{text-align:left}tr:nth-child(even){background:#f4f4f4}"
)


def write_report(lake: Lake, study_id: str) -> list[Path]:
    """Write the pages of a study and return their paths.

    Raises:
        StoreError: the study is not in the published store.
    """
    folder = lake.reports(study_id)
    folds = fold_statuses(lake, study_id)
    paths = []
    for summary in summarize(lake, study_id):
        name = summary.instrument
        own = [row for row in folds if row["instrument"] == name]
        page = html(summary, own, stitched(lake, study_id, name))
        path = folder / f"{segment(name)}.html"
        with atomic_write(path) as temporary:
            temporary.write_text(page, encoding="utf-8")
        paths.append(path)
    with atomic_write(folder / "plotly.min.js") as temporary:
        from plotly.offline import get_plotlyjs

        temporary.write_text(get_plotlyjs(), encoding="utf-8")
    return paths


def html(summary: Summary, folds: list[dict[str, Any]], lines: list[Line]) -> str:
    """Return one page."""
    shown = ("fold_key", "status", "n_bars", "fold_id", "reason")
    statuses = [["" if row[n] is None else str(row[n]) for n in shown] for row in folds]
    return "\n".join(
        (
            "<!doctype html><html lang='en'><meta charset='utf-8'>",
            f"<title>{escape(summary.title)}</title><style>{STYLE}</style>",
            f"<h1>{escape(summary.title)}</h1>",
            f"<p>{escape(verdict(summary))}</p>",
            table(COLUMNS, summary.table),
            f"<p><small>{escape(summary.note)}</small></p>",
            figure(lines) if lines else "<p>No complete fold yet.</p>",
            *skills(summary.ablation),
            f"<h2>Folds</h2>{table(shown, statuses)}",
            f"<p><small>study {escape(summary.study_id)}</small></p></html>",
        )
    )


def skills(ablation: Ablation | None) -> list[str]:
    """Return the part about skill banks; nothing for a study without them."""
    if ablation is None:
        return []
    return [
        "<h2>Skills</h2>",
        f"<p>{escape(ablation.title)}</p>",
        table(ABLATION_COLUMNS, ablation.table),
        f"<p><small>{escape(ablation.note)}</small></p>",
    ]


def table(columns: tuple[str, ...], rows: list[list[str]]) -> str:
    """Return rows of text as an HTML table."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def figure(lines: list[Line]) -> str:
    """Return the equity lines as an interactive figure."""
    import plotly.graph_objects as go

    made = go.Figure(
        layout={"title": "Equity out of sample, currency", "hovermode": "x", "height": 520}
    )
    for line in lines:
        style = {"width": 2} if line.learned else {"width": 1, "dash": "dot"}
        made.add_scatter(x=line.time, y=line.equity, name=line.label, mode="lines", line=style)
    return str(made.to_html(full_html=False, include_plotlyjs="plotly.min.js"))
