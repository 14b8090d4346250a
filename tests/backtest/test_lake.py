"""Paths stay inside the lake; files appear whole or not at all."""

import os
import threading
import time

import pyarrow as pa
import pytest

from backtest import lake as lake_module
from backtest.errors import StoreError
from backtest.lake import (
    Lake,
    atomic_write,
    locked,
    read_json,
    read_table,
    segment,
    write_json,
    write_table,
)


def test_layout(tmp_path):
    lake = Lake(tmp_path)
    shown = {
        lake.store: "backtest.duckdb",
        lake.bars("SP500"): "bars/SP500.parquet",
        lake.features("s", "SP500", "2001-01-01"): "features/s/SP500/2001-01-01.parquet",
        lake.experience("s", "SP500", "2001-01-01", "f"): "experience/s/SP500/2001-01-01/f",
        lake.policies("s", "SP500", "2001-01-01", "f"): "policies/s/SP500/2001-01-01/f",
        lake.skills("s", "SP500", "2001-01-01", "f"): "skills/s/SP500/2001-01-01/f",
        lake.fold_results("s", "SP500", "2001-01-01", "f"): "results/s/SP500/2001-01-01/f",
        lake.part("study", "s"): "results/s/@parts/@study/study",
        lake.part("audit", "s", "SP500"): "results/s/@parts/SP500/audit",
        lake.part("issues", instrument="SP500"): "results/@parts/SP500/issues",
        lake.reports("s"): "reports/s",
        lake.dagster_home: ".dagster",
    }
    for path, relative in shown.items():
        assert path == tmp_path / relative
    assert not list(tmp_path.iterdir())  # asking for a path creates nothing


@pytest.mark.parametrize("name", ["BTC/USD", "../../etc", "a b", "@parts", "a:b", "é", "*"])
def test_any_name_is_one_segment_of_its_own(name):
    shown = segment(name)
    assert "/" not in shown and shown != name
    assert not set(shown) & set("/@:*?[ ")


@pytest.mark.parametrize("name", ["", ".", "..", "..."])
def test_names_that_are_no_folder(name):
    with pytest.raises(StoreError, match="cannot name a folder"):
        segment(name)


def test_atomic_write_replaces_only_on_success(tmp_path):
    path = tmp_path / "deep" / "file.txt"
    with atomic_write(path) as temporary:
        temporary.write_text("one")
        assert not path.exists() and temporary.parent == path.parent
    with pytest.raises(KeyboardInterrupt), atomic_write(path) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "one"
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_rename_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file.json"
    write_json(path, {"a": 1})

    def refuse(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        write_json(path, {"a": 2})
    assert read_json(path) == {"a": 1} and list(tmp_path.iterdir()) == [path]


def test_contents_reach_the_disk_before_the_name(tmp_path, monkeypatch):
    events = []
    flush, rename = lake_module.flush, os.replace
    monkeypatch.setattr(lake_module, "flush", lambda p: (events.append(p), flush(p)))
    monkeypatch.setattr(os, "replace", lambda a, b: (events.append("rename"), rename(a, b)))
    path = tmp_path / "file.json"
    write_json(path, 1)
    assert events[0].name.endswith(".tmp") and events[1:] == ["rename", tmp_path]


def test_tables_come_back_and_equal_tables_give_equal_files(tmp_path):
    table = pa.table({"bar": [1, 2], "close": [1.5, None]})
    write_table(tmp_path / "a.parquet", table)
    write_table(tmp_path / "b.parquet", table)
    assert read_table(tmp_path / "a.parquet").equals(table)
    assert read_table(tmp_path / "a.parquet", ["bar"]).column_names == ["bar"]
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_reading_what_is_missing_or_broken(tmp_path):
    with pytest.raises(StoreError, match="no such file"):
        read_table(tmp_path / "none.parquet")
    with pytest.raises(StoreError, match="no such file"):
        read_json(tmp_path / "none.json")
    write_table(tmp_path / "a.parquet", pa.table({"bar": range(100)}))
    content = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(content[:-20])
    with pytest.raises(StoreError, match=r"a\.parquet: no complete Parquet"):
        read_table(tmp_path / "a.parquet")
    (tmp_path / "a.json").write_text('{"a":')
    with pytest.raises(StoreError, match="not valid JSON"):
        read_json(tmp_path / "a.json")
    with pytest.raises(StoreError, match="null for an undefined"):
        write_json(tmp_path / "b.json", float("nan"))


def test_the_lock_excludes_threads(tmp_path):
    inside, most = 0, 0

    def work():
        nonlocal inside, most
        with locked(tmp_path / "lock"):
            inside += 1
            most = max(most, inside)
            time.sleep(0.01)
            inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
