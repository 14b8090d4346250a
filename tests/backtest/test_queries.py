"""SQL from outside: one statement, read-only, no files, values that JSON can hold."""

import json
import threading

import pytest

from backtest import queries
from backtest.errors import StoreError
from backtest.lake import Lake
from backtest.publication import publish
from backtest.queries import connect, query
from tests.backtest.fold_rows import write_fold


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    lake = Lake(tmp_path_factory.mktemp("it's a lake"))
    write_fold(lake, [1.0, 2.0])
    publish(lake)
    return lake


def test_without_a_store_the_error_says_what_to_do(tmp_path):
    with pytest.raises(StoreError, match="no store yet; run `skillwalk run`"):
        query(Lake(tmp_path), "SELECT 1")
    assert list(tmp_path.iterdir()) == []
    Lake(tmp_path).store.write_bytes(b"not a database" * 1000)
    with pytest.raises(StoreError, match="cannot be opened"):
        query(Lake(tmp_path), "SELECT 1")


def test_values_fit_into_json(lake):
    columns, rows = query(
        lake,
        "SELECT TIMESTAMP '2020-01-01 10:00:00.5' AS t, DATE '2020-01-02' AS d, "
        "TIMESTAMPTZ '2020-01-01 00:00:00+02' AS z, 'nan'::DOUBLE AS nan, '-inf'::FLOAT AS inf, "
        "1.5::DECIMAL(5, 2) AS dec, sum(2::BIGINT) AS huge, NULL AS none, true AS yes, "
        "[1.0, 'nan'::DOUBLE] AS list, {'a': DATE '2020-01-02'} AS struct, "
        "INTERVAL 1 DAY AS gap, 'a'::BLOB AS blob, TIME '10:00:00' AS clock, 1 AS a, 2 AS a",
    )
    assert columns[-2:] == ["a", "a_2"]
    assert rows == [
        {
            "t": "2020-01-01T10:00:00.500000Z",
            "d": "2020-01-02",
            "z": "2019-12-31T22:00:00Z",
            "nan": None,
            "inf": None,
            "dec": 1.5,
            "huge": 2,
            "none": None,
            "yes": True,
            "list": [1.0, None],
            "struct": {"a": "2020-01-02"},
            "gap": "1 day, 0:00:00",
            "blob": "61",
            "clock": "10:00:00",
            "a": 1,
            "a_2": 2,
        }
    ]
    json.dumps(rows, allow_nan=False)


def test_times_of_the_store_are_utc(lake):
    (row,) = query(lake, "SELECT min(time) AS t FROM equity").rows
    assert row == {"t": "2020-01-31T00:00:00Z"}  # bar 30 of daily bars from 2020-01-01


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM equity",
        "FROM fold",
        "WITH a AS (SELECT 1) SELECT * FROM a -- comment",
        "DESCRIBE equity",
        "SHOW TABLES",
        "SUMMARIZE equity",
        "EXPLAIN SELECT 1",
        "PIVOT equity ON bar USING sum(pnl) GROUP BY seed;",
    ],
)
def test_what_reads_is_allowed(lake, sql):
    assert query(lake, sql).rows


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("", "one statement expected, 0 found"),
        ("SELECT 1; SELECT 2", "one statement expected, 2 found"),
        ("DELETE FROM fold", "DELETE is not allowed"),
        ("CREATE TABLE x AS SELECT 1", "CREATE is not allowed"),
        ("COPY fold TO 'stolen.csv'", "COPY is not allowed"),
        ("ATTACH 'other.duckdb'", "ATTACH is not allowed"),
        ("SET enable_external_access = true", "SET is not allowed"),
        ("PRAGMA database_list", "PRAGMA is not allowed"),
        ("EXPLAIN ANALYZE COPY (SELECT 1) TO 'stolen.csv'", "Permission"),
        ("SELECT * FROM read_text('/etc/hostname')", "Permission"),
        ("SELECT * FROM 'file.csv'", "Permission"),
        ("FROM lake", "lake does not exist"),  # no Python variable is a table
        ("SELECT nothing FROM fold", "nothing"),
        ("SELEKT 1", "syntax error"),
        ("SELECT 1 / 'a'::INTEGER", "Conversion"),
    ],
)
def test_everything_else_is_one_clear_error(lake, sql, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for live in (False, True):
        with pytest.raises(StoreError, match=f"SQL: .*{message}"):
            query(lake, sql, live=live)
    assert list(tmp_path.iterdir()) == []


def test_an_open_reader_neither_blocks_nor_freezes_others(tmp_path):
    lake = Lake(tmp_path)
    write_fold(lake, [1.0])
    publish(lake)
    count = "SELECT count(*) AS n FROM fold"
    with connect(lake) as connection:
        assert connection.execute(count).fetchall() == [(1,)]
        write_fold(lake, [1.0], 1)
        publish(lake)
        assert query(lake, count).rows == [{"n": 2}]  # the new file
        assert connection.execute(count).fetchall() == [(1,)]  # one consistent picture


def test_a_file_replaced_while_it_is_opened_is_opened_again(lake, monkeypatch):
    identities = iter([(1,), (2,), (2,), (3,), (3,), (3,)])
    monkeypatch.setattr(queries, "file_identity", lambda _: next(identities))
    assert query(lake, "SELECT count(*) AS n FROM fold").rows == [{"n": 1}]
    assert next(identities, None) is None  # third attempt: the same before and after
    changing = iter(range(1000))
    monkeypatch.setattr(queries, "file_identity", lambda _: next(changing))
    with pytest.raises(StoreError, match="replaced 20 times while it was opened"):
        query(lake, "SELECT 1")


def test_threads_query_at_once(lake):
    errors = []

    def work():
        try:
            assert query(lake, "SELECT count(*) AS n FROM equity").rows == [{"n": 2}]
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_live_reads_what_is_not_published_yet(tmp_path):
    lake = Lake(tmp_path)
    assert query(lake, "FROM fold", live=True).rows == []
    write_fold(lake, [1.0, 2.0])
    damaged = write_fold(lake, [1.0, 2.0], 1)
    damaged.path("equity").unlink()
    assert query(lake, "SELECT sum(pnl) AS pnl FROM equity", live=True).rows == [{"pnl": 3.0}]
    assert not lake.store.exists()
