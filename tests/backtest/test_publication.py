"""Publication: the same rows every time, whatever crashes, is damaged or runs beside it."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from backtest import publication
from backtest.errors import StoreError
from backtest.lake import Lake, read_table, write_table
from backtest.manifest import PartHeader, checksum, scan
from backtest.publication import publish
from backtest.queries import connect, query
from backtest.schema import declared
from backtest.store import write_fold_result, write_part
from tests.backtest.fold_rows import equity_rows, fold_row, header, metric_row, write_fold
from tests.backtest.publishing_process import KILLED

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path)


def contents(lake):
    with connect(lake) as connection:
        return {name: connection.execute(f"FROM {name}").fetchall() for name in declared()}


def process(lake, study, folds, *place):
    command = [sys.executable, "-m", "tests.backtest.publishing_process"]
    return subprocess.Popen([*command, str(lake.root), study, str(folds), *place], cwd=ROOT)


def leftovers(lake):
    return [p.name for p in lake.root.iterdir() if ".new" in p.name or p.name.endswith(".tmp")]


def test_an_empty_lake_gives_an_empty_store(lake):
    published = publish(lake)
    assert published.folds == 0 and set(published.rows.values()) == {0}
    assert published.path == lake.store and published.problems == published.missing == ()
    assert query(lake, "FROM oos_equity").rows == []


def test_publishing_twice_gives_identical_rows(lake):
    for fold in range(3):
        write_fold(lake, [1.0, 2.0], fold)
    first, before = publish(lake), contents(lake)
    second, after = publish(lake), contents(lake)
    assert first == second and before == after
    assert (first.folds, first.superseded) == (3, 0)
    assert first.rows["fold"] == 3 and first.rows["equity"] == 6
    assert leftovers(lake) == []


def test_a_rerun_of_a_fold_replaces_its_rows(lake):
    write_fold(lake, [1.0, 2.0], run="run-1")
    write_fold(lake, [1.0, 2.0], 1, run="run-1")
    publish(lake)
    before = contents(lake)
    write_fold(lake, [1.0, 2.0], run="run-2")  # the same result again
    assert publish(lake).superseded == 0
    assert contents(lake) == before
    write_fold(lake, [3.0], run="run-3")
    publish(lake)
    assert query(lake, "SELECT pnl FROM equity WHERE fold_id = (SELECT min(fold_id) FROM fold)"
    ).rows == [{"pnl": 3.0}]  # fmt: skip
    assert query(lake, "SELECT count(*) AS n FROM fold").rows == [{"n": 2}]


def test_newer_bars_leave_earlier_folds_as_they_are(lake):
    write_fold(lake, [1.0, 2.0], 0)
    write_fold(lake, [3.0], 1, status="partial", fold_id="short")
    publish(lake)
    before = contents(lake)
    write_fold(lake, [3.0, 4.0], 1, fold_id="grown")
    published = publish(lake)
    assert (published.folds, published.superseded) == (2, 1)
    after = contents(lake)
    assert after["fold"][0] == before["fold"][0]
    assert [row for row in after["equity"] if "grown" not in row] == before["equity"]
    flags = query(lake, "SELECT fold_id, superseded FROM fold WHERE fold_key = '2002-01-01'").rows
    assert {r["fold_id"]: r["superseded"] for r in flags} == {"short": True, "grown": False}


def test_the_newest_manifest_wins_whatever_its_folder(lake):
    write_fold(lake, [1.0], fold_id="zzz")
    write_fold(lake, [2.0], fold_id="aaa")
    publish(lake)
    live = "SELECT fold_id FROM fold WHERE NOT superseded"
    assert query(lake, live).rows == [{"fold_id": "aaa"}]
    write_fold(lake, [1.0], fold_id="zzz")
    publish(lake)
    assert query(lake, live).rows == query(lake, live, live=True).rows == [{"fold_id": "zzz"}]


def damage_missing(folder):
    next(folder.glob("*/equity.parquet")).unlink()


def damage_truncated(folder):
    path = next(folder.glob("*/equity.parquet"))
    path.write_bytes(path.read_bytes()[:-10])


def damage_flipped(folder):
    path = next(folder.glob("*/fold.parquet"))
    content = bytearray(path.read_bytes())
    content[200] ^= 255
    path.write_bytes(content)


def damage_no_manifest(folder):
    (folder / "manifest.json").unlink()


def damage_half_manifest(folder):
    path = folder / "manifest.json"
    path.write_text(path.read_text()[:80])


def damage_other_manifest(folder):
    (folder / "manifest.json").write_text('{"kind": "fold", "header": []}')


def damage_moved(folder):
    shutil.copytree(folder, folder.with_name("copy"))
    shutil.rmtree(folder)


DAMAGES = {
    damage_missing: "file is missing",
    damage_truncated: "file is damaged",
    damage_flipped: "file is damaged",
    damage_no_manifest: "no manifest",
    damage_half_manifest: "not valid JSON",
    damage_other_manifest: "not a manifest of this version",
    damage_moved: "belongs to another folder",
}


def test_damaged_results_are_reported_and_left_out(lake):
    for fold, damage in enumerate(DAMAGES):
        damage(write_fold(lake, [1.0, 2.0], fold).folder)
    write_fold(lake, [1.0, 2.0], 99)
    published = publish(lake)
    assert published.folds == 1 and published.rows["equity"] == 2
    assert len(published.problems) == len(DAMAGES)
    for fold, message in enumerate(DAMAGES.values()):
        (problem,) = [p for p in published.problems if header(fold).fold_key in p]
        assert message in problem


def rewrite(manifest, table, columns):
    """Replace a table's file as another version of the program would have written it."""
    path = manifest.path(table)
    write_table(path, columns)
    value = json.loads((manifest.folder / "manifest.json").read_text())
    value["files"][table] |= {
        "bytes": path.stat().st_size,
        "sha256": checksum(path),
        "rows": columns.num_rows,
    }
    (manifest.folder / "manifest.json").write_text(json.dumps(value))


def test_results_of_other_versions(lake):
    manifests = [write_fold(lake, [1.0, 2.0], fold) for fold in range(4)]
    equity = [read_table(m.path("equity")) for m in manifests]
    rewrite(manifests[0], "equity", equity[0].drop_columns(["reward"]))  # NULL is allowed here
    rewrite(manifests[1], "equity", equity[1].drop_columns(["pnl"]))
    rewrite(manifests[2], "equity", equity[2].append_column("fee", equity[2]["pnl"]))
    place = equity[3].schema.get_field_index("bar")
    narrow = equity[3].set_column(place, "bar", equity[3]["bar"].cast(pa.int32()))
    rewrite(manifests[3], "equity", narrow)
    published = publish(lake)
    assert [p.split(": ", 1)[1] for p in published.problems] == [
        "column pnl is missing; written by another version",
        "columns ['fee'] are unknown; written by another version",
        "column bar is int32, not int64; written by another version",
    ]
    assert query(lake, "SELECT DISTINCT reward FROM equity").rows == [{"reward": None}]


def trial(trial_id):
    row = {"trial_id": trial_id, "kind": "train", "params": {}, "seed": 0, "phase": None}
    return row | {"objective": 1.0, "started": 0, "seconds": 1.0, "status": "complete"}


def test_two_results_with_one_key_cost_the_older_one(lake):
    write_fold(lake, [1.0], 0)
    for fold in (1, 2):
        tables = {"fold": [fold_row(fold, 1)], "trial": [trial("same")]}
        write_fold_result(lake, header(fold), tables)
    published = publish(lake)
    (problem,) = published.problems
    assert "2002-01-01" in problem and "left out" in problem and "same" in problem
    assert published.folds == 2 and published.rows["trial"] == 1
    assert publish(lake) == published


def test_plans_show_what_is_missing_until_a_result_exists(lake):
    done = header(0)
    keys = [(done.fold_key, done.fold_id), ("2002-01-01", "f1"), ("2003-01-01", "f2")]
    rows = [
        fold_row(i, 1, status) | {"fold_key": key, "fold_id": name, "reason": "why"}
        for i, ((key, name), status) in enumerate(
            zip(keys, ("missing", "missing", "skipped"), strict=True)
        )
    ]
    write_part(lake, PartHeader("plan", "r", done.study_id, "SP500"), {"fold": rows})
    write_fold(lake, [1.0], 0)
    published = publish(lake)
    assert [(m.fold_key, m.status, m.reason) for m in published.missing] == [
        ("2002-01-01", "missing", "why")
    ]
    shown = "SELECT fold_key, status FROM fold ORDER BY fold_key"
    statuses = [tuple(r.values()) for r in query(lake, shown).rows]
    assert statuses == [
        ("2001-01-01", "complete"), ("2002-01-01", "missing"), ("2003-01-01", "skipped"),
    ]  # fmt: skip
    assert query(lake, shown, live=True).rows == query(lake, shown).rows
    write_fold(lake, [1.0], 1, fold_id="other bars than planned")
    published = publish(lake)
    assert [m.fold_id for m in published.missing] == ["f1"]
    assert query(lake, "SELECT count(*) AS n FROM fold").rows == [{"n": 3}]


def test_the_newest_plan_of_a_fold_counts(lake):
    for part, status in (("plan", "missing"), ("another plan", "skipped")):
        row = fold_row(0, 1, status) | {"fold_key": "2001-01-01", "fold_id": part}
        write_part(lake, PartHeader(part, "r", "s", "SP500"), {"fold": [row, row | {
            "fold_id": f"{part} again"}]})  # fmt: skip
    publish(lake)
    assert query(lake, "SELECT fold_id, status FROM fold").rows == [
        {"fold_id": "another plan again", "status": "skipped"}
    ]


def test_a_failed_fold_is_missing(lake):
    write_fold(lake, [1.0], 0, status="failed")
    write_fold(lake, [1.0], 1, status="skipped")
    assert [m.status for m in publish(lake).missing] == ["failed"]


def test_parts_are_published(lake):
    write_part(lake, PartHeader("summary", "r", "s"), {"metric": [metric_row()]})
    assert publish(lake).rows["metric"] == 1
    (lake.part("broken", "s")).mkdir(parents=True)
    assert "no manifest" in publish(lake).problems[0]


def test_a_failure_at_any_step_keeps_the_last_good_store(lake, monkeypatch):
    write_fold(lake, [1.0], 0)
    publish(lake)
    before = lake.store.read_bytes()
    write_fold(lake, [1.0], 1)

    def interrupt(*_):
        raise KeyboardInterrupt

    for step in ("scan", "create_tables", "insert", "create_views", "check", "replace"):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(publication, step, interrupt)
            publish(lake)
        assert lake.store.read_bytes() == before and leftovers(lake) == []
    assert publish(lake).folds == 2


def test_a_log_left_behind_is_not_published(lake, monkeypatch, tmp_path):
    log = tmp_path / "log"
    monkeypatch.setattr(publication, "wal", lambda _: log)
    monkeypatch.setattr(publication, "check", lambda *_: log.touch())
    with pytest.raises(StoreError, match="left a log behind"):
        publish(lake)
    assert not lake.store.exists()


def test_lost_rows_are_noticed(lake, monkeypatch):
    write_fold(lake, [1.0], 0)
    monkeypatch.setattr(publication, "insert", lambda *_: 0)
    with pytest.raises(StoreError, match="table equity: 0 rows loaded, manifests say 1"):
        publish(lake)
    assert not lake.store.exists() and leftovers(lake) == []


@pytest.mark.parametrize(
    "place",
    [
        ("backtest.store.write_manifest", "2"),  # data of fold 2 written, no manifest
        ("backtest.publication.insert", "30"),  # in the middle of the second load
        ("backtest.publication.replace", "2"),  # complete, checked, not renamed
    ],
)
def test_a_killed_process_leaves_the_last_good_store(lake, place):
    assert process(lake, "s", 2, *place).wait() == KILLED
    assert query(lake, "SELECT count(*) AS n FROM equity").rows == [{"n": 2}]
    manifests, problems = scan(lake)
    unfinished = place[0].endswith("write_manifest")
    assert (len(manifests), len(problems)) == ((1, 1) if unfinished else (2, 0))
    published = publish(lake)
    assert published.folds == len(manifests) and leftovers(lake) == []
    write_fold(lake, [1.0, 2.0], 1, study="s")  # the fold is simply run again
    assert publish(lake).folds == 2 and publish(lake).problems == ()


def test_two_processes_publish_and_a_reader_sees_no_error(lake):
    publish(lake)
    processes = [process(lake, study, 2) for study in ("s1", "s2")]
    seen = []
    while any(p.poll() is None for p in processes):
        (row,) = query(lake, "SELECT count(*) AS folds FROM fold").rows
        (bars,) = query(lake, "SELECT count(*) AS bars FROM equity").rows
        assert bars["bars"] >= 2 * row["folds"]  # a later store has more, never half a fold
        seen.append(row["folds"])
        time.sleep(0.02)
    assert [p.returncode for p in processes] == [0, 0]
    assert seen == sorted(seen) and len(seen) > 3
    found = query(lake, "SELECT study_id, count(*) AS n FROM fold GROUP BY ALL ORDER BY ALL").rows
    assert [tuple(r.values()) for r in found] == [("s1", 2), ("s2", 2)]


def test_one_configuration_run_twice_at_once_gives_its_rows_once(lake):
    processes = [process(lake, "s", 2) for _ in range(2)]
    assert [p.wait() for p in processes] == [0, 0]
    published = publish(lake)
    assert (published.rows["fold"], published.rows["equity"]) == (2, 4)
    assert published.problems == ()


def test_many_small_files_are_one_scan(lake, monkeypatch):
    for fold in range(12):
        write_fold_result(
            lake, header(fold), {"fold": [fold_row(fold, 1)], "equity": equity_rows([1.0], fold)}
        )
    loads = []
    insert = publication.insert
    monkeypatch.setattr(
        publication, "insert", lambda c, name, s: (loads.append(name), insert(c, name, s))[1]
    )
    assert publish(lake).rows["equity"] == 12
    assert sorted(loads) == sorted(declared())
