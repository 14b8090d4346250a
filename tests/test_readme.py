"""The README's SQL runs on a store of the current schema, and the files it names exist."""

import re
from pathlib import Path

import duckdb
import pytest

from backtest.schema import create_tables, create_views

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"```sql\n(.*?)```", README, re.S)


@pytest.fixture(scope="module")
def store():
    with duckdb.connect(":memory:") as connection:
        create_tables(connection)
        create_views(connection)
        yield connection


def test_there_are_examples():
    assert len(QUERIES) >= 4


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: q.split("\n")[0][:40])
def test_sql_runs(store, query):
    assert store.execute(query).description


def test_linked_files_exist():
    links = [t for t in re.findall(r"\]\(([^)]+)\)", README) if "://" not in t]
    assert links
    missing = [target for target in links if not (ROOT / target).exists()]
    assert not missing


def test_commands_exist():
    import typer.main

    from pipelines.cli import app

    known = set(typer.main.get_command(app).commands)
    named = set(re.findall(r"skillwalk (\w+) ", README))
    for cell in re.findall(r"^\| (`.*?) \|", README, re.M):
        named |= set(re.findall(r"`(\w+)`", cell))
    assert named <= known
