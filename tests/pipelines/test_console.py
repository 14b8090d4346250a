"""Tables and progress without a terminal: plain, aligned, complete."""

import json
import math

import pytest

from backtest.errors import ConfigError
from pipelines.console import Lines, progress, shown, table, write_figures


def test_tables_are_plain_text_of_any_width(capsys):
    table(("name", "value", "text"), [("a", 1.5, "x" * 300), ("b", None, "[red]y[/red]")], "Title")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Title"
    assert lines[1].split() == ["name", "value", "text"]
    assert lines[3].split() == ["a", "1.5", "x" * 300]
    assert lines[4].split() == ["b", "[red]y[/red]"]
    assert not any("\x1b" in line for line in lines)


def test_numbers_stand_on_the_right(capsys):
    table(("n", "t"), [("5", "5"), ("-12.5%", "a")])
    rows = capsys.readouterr().out.splitlines()[2:]
    assert rows[0].startswith("     5   5")
    assert rows[1].startswith("-12.5%   a")


def test_cells():
    assert [shown(v) for v in (None, 1, 0.1, 1234567.8, "x", True)] == [
        *("", "1", "0.1", "1,234,568", "x", "True")
    ]


def test_lines_speak_at_the_ends_and_seldom_between(capsys):
    step = Lines("work", 100)
    for done in range(101):
        step(done, f"part {done}")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == ["work: 0 of 100, part 0", "work: 100 of 100, part 100"]


def test_shares_are_percent_and_notes_stay(capsys):
    step = Lines("work", 1.0)
    step(0.25, "a quarter")
    step.note("look [here]")
    assert capsys.readouterr().err == "work: 25%, a quarter\nlook [here]\n"


def test_progress_draws_a_bar_on_a_terminal_only(capsys, monkeypatch):
    with progress("work", 2) as step:
        step(2, "all")
    assert capsys.readouterr().err == "work: 2 of 2, all\n"
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with progress("work", 2) as step:
        step(1, "[half]")
        step.note("[a note]")
    text = capsys.readouterr().err
    assert "work: " not in text
    assert "[a note]" in text


def test_figures_are_json_without_nan(tmp_path, capsys):
    path = tmp_path / "new" / "figures.json"
    write_figures(path, {"a": math.nan, "b": [math.inf, 1.0], "c": {"d": None}})
    assert json.loads(path.read_text()) == {"a": None, "b": [None, 1.0], "c": {"d": None}}
    assert capsys.readouterr().out == f"figures written to {path}\n"
    write_figures(None, {})
    assert capsys.readouterr().out == ""
    with pytest.raises(ConfigError, match=f"--json {tmp_path}: cannot be written"):
        write_figures(tmp_path, {})
