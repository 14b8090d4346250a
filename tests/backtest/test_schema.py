"""The schema is spec and documentation at once; rows are brought into its form or refused."""

import re
from datetime import UTC, date, datetime, timedelta, timezone

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from backtest.errors import StoreError
from backtest.schema import conform, create_tables, create_views, declared

KEYS = {
    "study": "study_id",
    "run": "run_id",
    "fold": "fold_id",
    "trial": "trial_id",
    "trial_return": "trial_id session",
    "policy": "fold_id seed variant",
    "curve": "fold_id seed epoch",
    "equity": "fold_id seed variant bar",
    "trade": "fold_id seed variant trade",
    "metric": "scope scope_id policy_kind variant seed name",
    "reward_component": "fold_id seed variant name",
    "reward_audit": "study_id instrument formula source policy horizon",
    "skill": "fold_id seed bank slot",
    "bank_stat": "fold_id seed bank name",
    "skill_ablation": "fold_id seed variant",
    "aux_verdict": "fold_id seed epoch",
    "forecast_quality": "fold_id seed name",
    "feature_stat": "fold_id feature",
    "data_issue": "instrument source kind first_row",
}
VIEWS = {
    "walk_forward_summary": "study_id instrument policy_kind variant name value low high n",
    "leaderboard": "rank study_id policy_kind variant deflated_sharpe sharpe sharpe_low "
    "sharpe_high net_return max_drawdown",
    "oos_equity": "study_id instrument seed variant time bar equity pnl_cum",
    "is_vs_oos": "fold_id seed variant train_sharpe validation_sharpe oos_sharpe decay",
    "skill_verdict": "fold_id bank slot uses utility delta_sharpe verdict seed",
}


@pytest.fixture(scope="module")
def empty():
    with duckdb.connect(":memory:") as connection:
        create_tables(connection)
        create_views(connection)
        yield connection


def test_every_table_has_its_key():
    assert {name: " ".join(table.key) for name, table in declared().items()} == KEYS


def test_views_have_their_columns(empty):
    for view, columns in VIEWS.items():
        assert " ".join(empty.sql(f"FROM {view}").columns) == columns


def test_everything_is_explained(empty):
    silent = empty.sql(
        "SELECT table_name, column_name FROM duckdb_columns() "
        "WHERE NOT internal AND coalesce(comment, '') = '' "
        "AND table_name NOT IN (SELECT view_name FROM duckdb_views())"
    ).fetchall()
    assert silent == []
    for kind in ("table", "view"):
        assert (
            empty.sql(
                f"SELECT {kind}_name FROM duckdb_{kind}s() "
                "WHERE NOT internal AND coalesce(comment, '') = ''"
            ).fetchall()
            == []
        )


def test_measured_columns_state_a_unit(empty):
    unit = re.compile(
        "currency|points|units?|reward|year|fraction|dimensionless|seconds?|nats|count|deviations"
    )
    numbers = empty.sql(
        "SELECT table_name || '.' || column_name, comment FROM duckdb_columns() "
        "WHERE NOT internal AND data_type = 'DOUBLE' "
        "AND table_name NOT IN (SELECT view_name FROM duckdb_views())"
    ).fetchall()
    assert len(numbers) > 80
    assert [name for name, text in numbers if not unit.search(text)] == []


def test_times_say_utc(empty):
    times = empty.sql(
        "SELECT comment FROM duckdb_columns() WHERE NOT internal AND data_type = 'TIMESTAMP' "
        "AND table_name NOT IN (SELECT view_name FROM duckdb_views())"
    ).fetchall()
    assert all("UTC" in text or "execution" in text for (text,) in times)


def test_column_mappings_and_rows_and_tables_give_the_same():
    fixed = {"fold_id": "f"}
    rows = [
        {"seed": 1, "bank": "task", "name": "hits", "value": 2.0},
        {"seed": 0, "bank": "task", "name": "hits", "value": None},
    ]
    columns = {
        "seed": np.array([1, 0], np.int64),
        "bank": ["task", "task"],
        "name": pa.array(["hits", "hits"]).dictionary_encode(),
        "value": np.array([2.0, np.nan], np.float32),
    }
    expected = conform("bank_stat", rows, fixed)
    assert expected.to_pylist() == [
        {"fold_id": "f", "seed": 0, "bank": "task", "name": "hits", "value": None},
        {"fold_id": "f", "seed": 1, "bank": "task", "name": "hits", "value": 2.0},
    ]  # sorted by key, NaN is NULL
    assert conform("bank_stat", columns, fixed).equals(expected)
    assert conform("bank_stat", pa.table(columns), fixed).equals(expected)
    assert conform("bank_stat", expected, fixed).equals(expected)


def test_no_rows_are_rows_too():
    for rows in ([], {}, pa.table({})):
        if rows == []:
            assert conform("bank_stat", rows, {"fold_id": "f"}).num_rows == 0
        else:
            with pytest.raises(StoreError, match="missing columns"):
                conform("bank_stat", rows, {"fold_id": "f"})


AWARE = datetime(2020, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    "times",
    [
        np.array([1577836800_000000999], np.int64),
        np.array(["2020-01-01"], "datetime64[ns]"),
        np.array(["2020-01-01"], "datetime64[D]"),
        [AWARE],
        [datetime(2020, 1, 1)],
        pa.array([AWARE], pa.timestamp("ns", "Europe/Paris")),
        [np.int64(1577836800_000000000)],
    ],
)
def test_times_become_utc_microseconds(times):
    rows = {"study_id": ["s"], "started": times, "finished": [None], "device": [None]}
    rows |= {"driver": [None], "host_os": ["x"], "status": ["running"], "command": ["run"]}
    table = conform("run", rows, {"run_id": "r"})
    assert table["started"].type == pa.timestamp("us")
    assert table["started"][0].as_py() == datetime(2020, 1, 1, tzinfo=UTC).replace(tzinfo=None)


def test_sessions_are_dates_or_days():
    for days in (np.array([18262], np.int32), np.array([18262]), [date(2020, 1, 1)]):
        table = conform("trial_return", {"session": days, "pnl": [1]}, {"trial_id": "t"})
        assert table["session"][0].as_py() == date(2020, 1, 1)
        assert table["pnl"][0].as_py() == 1.0


def test_json_columns_take_plain_values():
    row = {"config": {"b": 1, "a": [1.5]}, "code_hash": "c", "created": AWARE}
    row |= {"package_version": "1", "library_versions": {}}
    assert conform("study", [row], {"study_id": "s"})["config"][0].as_py() == '{"a":[1.5],"b":1}'


GOOD = {"seed": [0], "bank": ["task"], "name": ["hits"], "value": [1.0]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"value": [float("inf")]}, "bank_stat.value: infinite"),
        ({"value": ["1.0"]}, "bank_stat.value: string given, double expected"),
        ({"value": [True]}, "bank_stat.value: bool given"),
        ({"name": [1]}, "bank_stat.name: int64 given, string expected"),
        ({"seed": [0.5]}, "bank_stat.seed: int32 expected"),
        ({"seed": [2**40]}, "bank_stat.seed: int32 expected"),
        ({"seed": [0, 1]}, "unequal length"),
        ({"slot": [0]}, r"unknown columns \['slot'\]"),
        ({"fold_id": ["other"]}, "holds \\['other'\\], but these rows belong to 'f'"),
        ({"fold_id": [None]}, "holds \\['None'\\]"),
    ],
)
def test_refused_rows(change, message):
    with pytest.raises(StoreError, match=message):
        conform("bank_stat", GOOD | change, {"fold_id": "f"})


def test_refused_shapes():
    with pytest.raises(StoreError, match=r"missing columns \['value'\]"):
        conform("bank_stat", {k: v for k, v in GOOD.items() if k != "value"}, {"fold_id": "f"})
    with pytest.raises(StoreError, match=r"no such table; schema\.sql has study, run"):
        conform("banks", GOOD, {})
    rows = [{"session": date(2020, 1, 1), "pnl": 1.0}, {"session": date(2020, 1, 2)}]
    with pytest.raises(StoreError, match=r"row 1: columns \['pnl'\] are not in every row"):
        conform("trial_return", rows, {"trial_id": "t"})
