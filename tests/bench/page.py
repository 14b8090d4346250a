"""docs/performance.md from recorded runs: `python -m tests.bench.page [RUN.json ...]`.

Files given are kept in docs/bench; then tables and pictures are made again from all that lie there.
What stands between two marks of the page is made here, so no figure is typed by hand; the text
around them stays. A mark is a line `<!-- NAME -->`, and `<!-- end -->` closes it: NAME is `goals`,
`pictures`, or a part and a kind of device (`market gpu`). Where several runs measured a part on a
kind of device, the latest counts.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.bench.__main__ import PARTS
from tests.bench.goals import GOALS, Goal
from tests.bench.plots import LABELS, PEERS, curves, draw, file_name, peers
from tests.bench.report import Run, detail, pipe_table, scaled

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, RUNS = DOCS / "performance.md", DOCS / "bench"
MARKED = re.compile(r"(<!-- (?!end)([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main(files: Sequence[str]) -> None:
    """Record the given runs and make the page again."""
    RUNS.mkdir(exist_ok=True)
    for file in map(Path, files):
        json.loads(file.read_text())  # a broken file is not recorded
        (RUNS / file.name).write_text(file.read_text())
    runs = latest(recorded())
    pictures = draw(runs, DOCS)
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8"), runs), encoding="utf-8")
    print(f"{PAGE.name}: {len(runs)} runs, {len(pictures)} pictures")


def recorded() -> list[Run]:
    """Return the runs of docs/bench, the oldest first."""
    runs = [json.loads(path.read_text()) for path in sorted(RUNS.glob("*.json"))]
    return sorted(runs, key=lambda run: run["time"])


def latest(runs: Sequence[Run]) -> list[Run]:
    """Return the runs with those rows alone that no later run on such a device replaced."""
    newest = {
        (run["device"]["kind"], row["part"]): run["time"] for run in runs for row in run["rows"]
    }
    kept = []
    for run in runs:
        kind = run["device"]["kind"]
        rows = [row for row in run["rows"] if newest[kind, row["part"]] == run["time"]]
        if rows:
            kept.append(run | {"rows": rows})
    return kept


def rendered(text: str, runs: Sequence[Run]) -> str:
    """Return the page with everything between marks made from runs.

    Raises:
        ValueError: a mark that names no part or no kind of device.
    """

    def block(found: re.Match[str]) -> str:
        name = found[2]
        made = {"goals": goals, "pictures": pictures}.get(name)
        body = made(runs) if made else part(runs, *name.rsplit(" ", 1))
        return f"{found[1]}{body}\n{found[3]}"

    return MARKED.sub(block, text)


def part(runs: Sequence[Run], name: str, kind: str) -> str:
    """Return the rows of one part on one kind of device, under where, when and how."""
    if name not in PARTS or kind not in LABELS:
        raise ValueError(f"mark {name} {kind}: not a part and gpu or cpu")
    for run in runs:
        rows = [row for row in run["rows"] if row["part"] == name]
        if run["device"]["kind"] == kind and rows:
            table = [
                (row["name"], f"{scaled(row['figure'])} {row['unit']}", detail(row)) for row in rows
            ]
            return f"{source(run, name)}\n\n{pipe_table(('', 'figure', 'how'), table)}"
    return "Not recorded."


def source(run: Run, name: str) -> str:
    """Return device, date, the command for one part, and how busy the machine was before it."""
    command = re.sub(r" --only[ =]\S+", "", run["command"])
    if command.split()[2] == "tests.bench":
        command += f" --only {name}"
    device = f"{run['device']['name']} ({run['device']['platform']})"
    return f"{device}, {run['time'][:10]}, `{command}`, load {run['load']:g} when it began:"


def goals(runs: Sequence[Run]) -> str:
    """Return every goal with the figure, its source, and whether it is met."""
    lines = []
    for key, goal in GOALS.items():
        for kind in (goal.device,) if goal.device else ("gpu", "cpu"):
            lines.append((goal.text, goal.wording(), *_reached(runs, key, goal, kind), goal.beside))
    columns = ("what", "goal", "figure", "met", "device, date", "beside")
    return pipe_table(columns, lines)


def _reached(runs: Sequence[Run], key: str, goal: Goal, kind: str) -> tuple[str, str, str]:
    found: list[tuple[float, Run]] = [
        (row["figure"], run)
        for run in runs
        if run["device"]["kind"] == kind
        for row in run["rows"]
        if row["goal"] == key and row["figure"] is not None
    ]
    if not found:
        return "not measured", "", LABELS[kind]
    figure, run = (min if goal.at_most else max)(found, key=lambda pair: pair[0])
    met = "yes" if goal.met(figure) else "**no**"
    return f"{scaled(figure)} {goal.unit}", met, f"{run['device']['name']}, {run['time'][:10]}"


def pictures(runs: Sequence[Run]) -> str:
    """Return the links to what `plots.draw` drew."""
    links = [f"![Over {axis}]({file_name(axis)})" for axis in curves(runs)]
    return "\n\n".join([*links, f"![Us and the peers]({PEERS})"] if peers(runs) else links)


if __name__ == "__main__":
    main(sys.argv[1:])
