"""Results on disk: checked against the schema first, complete or absent, replaced as a whole."""

import os
from datetime import UTC, datetime

import pyarrow.parquet as pq
import pytest

from backtest import store
from backtest.errors import StoreError
from backtest.identity import provenance
from backtest.lake import Lake, read_json, read_table
from backtest.manifest import PartHeader, defect, read_manifest, scan
from backtest.schema import declared
from backtest.store import (
    FOLD_TABLES,
    fold_result,
    record_run,
    record_study,
    write_fold_result,
    write_part,
)
from tests.backtest.fold_rows import equity_rows, fold_row, header, metric_row, write_fold


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path)


def files(lake):
    return sorted(p.relative_to(lake.root).as_posix() for p in lake.root.rglob("*.parquet"))


def test_a_fold_result_has_the_schemas_columns_and_a_manifest(lake):
    manifest = write_fold(lake, [1.0, 2.0])
    assert manifest.status == "complete" and manifest.files["equity"].rows == 2
    for table in ("fold", "equity"):
        assert pq.read_schema(manifest.path(table)).names == declared()[table].schema.names
    assert read_table(manifest.path("equity"))["fold_id"].unique().to_pylist() == [header().fold_id]
    assert read_manifest(manifest.folder) == manifest and scan(lake) == ([manifest], [])
    value = read_json(manifest.folder / "manifest.json")
    assert value["kind"] == "fold" and value["header"]["run_id"] == "run-1"
    assert value["files"]["equity"].keys() == {"path", "rows", "bytes", "sha256"}
    with pytest.raises(StoreError, match=r"holds no table trade, only \['equity', 'fold'\]"):
        manifest.path("trade")


def test_rows_are_the_same_bytes_in_any_order(lake):
    one = write_fold(lake, [1.0, 2.0])
    rows = equity_rows([1.0, 2.0])
    backwards = {name: list(column)[::-1] for name, column in rows.items()}
    two = write_fold_result(lake, header(), {"fold": [fold_row()], "equity": backwards})
    assert two.files["equity"].sha256 == one.files["equity"].sha256
    assert two.created > one.created


def test_a_rerun_replaces_the_files_of_the_same_fold(lake):
    write_fold(lake, [1.0, 2.0])
    second = write_fold(lake, [5.0, 6.0])
    assert len(files(lake)) == 2  # fold and equity of the second
    assert read_table(second.path("equity"))["pnl"].to_pylist() == [5.0, 6.0]
    assert scan(lake) == ([second], [])


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"equity": equity_rows([1.0])}, "table fold needs exactly one row"),
        ({"fold": [fold_row(), fold_row()]}, "table fold: .*[Dd]uplicate key"),
        ({"fold": [fold_row(status="done")]}, "table fold: .*CHECK constraint"),
        ({"fold": [fold_row(train_stop=999)]}, "table fold: .*CHECK constraint"),
        ({"fold": [fold_row(n_bars=None)]}, "table fold: .*NOT NULL"),
        ({"study": []}, r"tables \['study'\] do not belong here"),
        ({"fold": [fold_row()], "metric": [metric_row(variant="flat")]}, "metric: .*CHECK"),
        ({"fold": [fold_row()], "metric": [metric_row()] * 2}, "metric: .*[Dd]uplicate key"),
        (
            {"fold": [fold_row()], "equity": equity_rows([1.0], variant="chosen")},
            "equity: .*CHECK",
        ),
    ],
)
def test_what_the_schema_refuses_is_not_written(lake, tables, message):
    with pytest.raises(StoreError, match=message):
        write_fold_result(lake, header(), tables)
    assert files(lake) == []


@pytest.mark.parametrize("step", [0, 1, 2, 3])
def test_a_failure_at_any_step_leaves_the_earlier_result(lake, monkeypatch, step):
    first = write_fold(lake, [1.0, 2.0])
    rename, left = os.replace, step

    def fail_at_step(*paths):
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1
        rename(*paths)

    monkeypatch.setattr(os, "replace", fail_at_step)
    if step < 3:  # two tables and the manifest
        with pytest.raises(KeyboardInterrupt):
            write_fold(lake, [5.0, 6.0])
        found = fold_result(lake, header())
        assert found == first
        assert read_table(found.path("equity"))["pnl"].to_pylist() == [1.0, 2.0]
    else:
        assert write_fold(lake, [5.0, 6.0]) == fold_result(lake, header())
    monkeypatch.undo()
    write_fold(lake, [7.0, 8.0])
    assert len(files(lake)) == 2  # nothing of the failed attempt stays


def test_resume_sees_only_whole_results(lake):
    assert fold_result(lake, header()) is None
    manifest = write_fold(lake, [1.0, 2.0])
    assert fold_result(lake, header(run="other run")) == manifest
    path = manifest.path("equity")
    path.write_bytes(path.read_bytes()[:-1])
    assert fold_result(lake, header()) is None and "damaged" in defect(manifest)
    path.unlink()
    assert "missing" in defect(manifest)


def test_damage_of_equal_size_is_seen_too(lake):
    manifest = write_fold(lake, [1.0, 2.0])
    path = manifest.path("equity")
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    assert "damaged" in defect(manifest)
    assert defect(manifest, contents=False) is None


def test_parts_belong_to_a_study_or_an_instrument(lake):
    header_ = PartHeader("summary", "r", "s", "ES")
    manifest = write_part(lake, header_, {"metric": [metric_row()]})
    row = read_table(manifest.path("metric")).to_pylist()[0]
    assert (row["scope"], row["scope_id"]) == ("instrument", "s/ES")
    manifest = write_part(lake, PartHeader("summary", "r", "s"), {"metric": [metric_row()]})
    row = read_table(manifest.path("metric")).to_pylist()[0]
    assert (row["scope"], row["scope_id"]) == ("study", "s")
    issue = {"source": "a.csv", "kind": "gap", "first_row": 3, "rows": 1, "policy": "keep"}
    issue |= {"action": "kept", "message": "a gap"}
    manifest = write_part(lake, PartHeader("issues", "r", instrument="ES"), {"data_issue": [issue]})
    assert read_table(manifest.path("data_issue"))["instrument"].to_pylist() == ["ES"]
    assert len(scan(lake)[0]) == 3 and scan(lake)[1] == []


def test_parts_in_the_wrong_place(lake):
    with pytest.raises(StoreError, match="needs a study_id, an instrument"):
        write_part(lake, PartHeader("x", "r"), {})
    with pytest.raises(StoreError, match=r"\['metric'\] do not belong here; allowed are data_iss"):
        write_part(lake, PartHeader("x", "r", instrument="ES"), {"metric": [metric_row()]})
    with pytest.raises(StoreError, match=r"\['equity'\] do not belong here"):
        write_part(lake, PartHeader("x", "r", "s", "ES"), {"equity": equity_rows([1.0])})
    plan = fold_row() | {"fold_id": "f", "fold_key": "k"}
    with pytest.raises(StoreError, match=r"status \['complete'\] need a fold result"):
        write_part(lake, PartHeader("plan", "r", "s", "ES"), {"fold": [plan]})
    assert files(lake) == []


def test_the_first_record_of_a_study_wins(lake):
    record_study(lake, "s", "run-1", {"learner": {"gamma": 0.8}}, provenance())
    record_study(lake, "s", "run-2", {"learner": {"gamma": 0.9}}, provenance())
    ((manifest,), _) = scan(lake)
    (row,) = read_table(manifest.path("study")).to_pylist()
    assert manifest.header.run_id == "run-1" and '"gamma":0.8' in row["config"]
    assert row["package_version"] and '"duckdb"' in row["library_versions"]


def test_a_run_is_rewritten_when_it_ends(lake):
    row = {"run_id": "r", "study_id": "s", "started": datetime(2020, 1, 1, tzinfo=UTC)}
    row |= {"finished": None, "device": None, "driver": None, "host_os": "x", "command": "run"}
    record_run(lake, row | {"status": "running"})
    record_run(lake, row | {"status": "complete", "finished": datetime(2020, 1, 2, tzinfo=UTC)})
    ((manifest,), _) = scan(lake)
    (found,) = read_table(manifest.path("run")).to_pylist()
    assert found["status"] == "complete" and found["finished"] == datetime(2020, 1, 2)


def test_every_table_of_the_schema_has_a_place():
    assert set(FOLD_TABLES) | set(store.PART_TABLES) | set(store.DATA_TABLES) == set(declared())
