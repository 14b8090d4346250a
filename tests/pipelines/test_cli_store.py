"""`sql` and `report` on a small published lake."""

import json

import pytest
from typer.testing import CliRunner

from backtest.lake import Lake
from backtest.manifest import PartHeader
from backtest.publication import publish
from backtest.store import write_part
from pipelines import cli
from tests.backtest.fold_rows import metric_row, write_fold

STUDY = "a" * 16


@pytest.fixture
def lake(tmp_path):
    lake = Lake(tmp_path / "lake")
    write_fold(lake, [10.0, -5.0], study=STUDY)
    rows = [
        metric_row("sharpe", 0.5, variant="chosen"),
        metric_row("net_return", 0.1, variant="chosen"),
        metric_row("p_improvement_over_buy_and_hold", 0.25, variant="chosen"),
        metric_row("sharpe", 0.9, seed=-1, variant="buy_and_hold", kind="baseline"),
    ]
    write_part(lake, PartHeader("walk_forward", "r", STUDY, "SP500"), {"metric": rows})
    publish(lake)
    return lake.root


def invoke(*arguments):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


def test_sql_prints_a_table_and_writes_json(lake, tmp_path):
    out = tmp_path / "rows.json"
    statement = "SELECT bar, pnl, fill_price, 'nan'::DOUBLE AS odd FROM equity ORDER BY bar"
    done = invoke("sql", statement, "--lake", lake, "--json", out)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["bar", "pnl", "fill_price", "odd"]
    assert lines[2].split() == ["30", "10", "NULL", "NULL"]
    assert lines[4] == "2 rows"
    assert json.loads(out.read_text()) == {
        "columns": ["bar", "pnl", "fill_price", "odd"],
        "rows": [
            {"bar": 30, "pnl": 10.0, "fill_price": None, "odd": None},
            {"bar": 31, "pnl": -5.0, "fill_price": None, "odd": None},
        ],
    }


def test_sql_is_not_markup(lake):
    assert (
        "[bold]x[/bold] [1, 2]"
        in invoke("sql", "SELECT '[bold]x[/bold] [1, 2]' AS t", "--lake", lake).stdout
    )


def test_sql_of_running_folds(lake):
    write_fold(Lake(lake), [1.0], fold=1, study=STUDY)
    count = "SELECT count(*) AS n FROM fold"
    assert "1" in invoke("sql", count, "--lake", lake).stdout.split()
    assert "2" in invoke("sql", count, "--lake", lake, "--live").stdout.split()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DROP TABLE fold", "DROP is not allowed"),
        ("SELECT x FROM fold", "x"),
        ("", "one statement"),
    ],
)
def test_sql_mistakes_exit_with_2(lake, statement, message):
    done = invoke("sql", statement, "--lake", lake)
    assert done.exit_code == 2
    assert done.stderr.startswith("error: SQL: ")
    assert message in done.stderr


def test_a_lake_without_a_store_is_not_made(tmp_path):
    for command in (("sql", "SELECT 1"), ("report",)):
        done = invoke(*command, "--lake", tmp_path / "none")
        assert done.exit_code == 2
        assert "run `skillwalk run`" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_report_shows_table_and_verdict(lake, tmp_path):
    page = lake / "reports" / STUDY / "report.html"
    page.parent.mkdir(parents=True)
    page.write_text("<html>")
    out = tmp_path / "report.json"
    done = invoke("report", "--lake", lake, "--json", out)
    assert done.exit_code == 0
    assert "did not beat buy and hold: P = 0.25" in done.stdout
    assert f"report: {page}" in done.stdout
    value = json.loads(out.read_text())
    assert value["study_id"] == STUDY
    assert value["instruments"][0]["verdict"].startswith("Out of sample the policy did not beat")
    assert invoke("report", "--lake", lake, "--study", "other").exit_code == 2
    assert invoke("report", "--lake", lake, "--instrument", "NQ").exit_code == 2
