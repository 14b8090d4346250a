"""Ids change with everything that can change a row, and with nothing else."""

import numpy as np
import pytest

from backtest.config import parse
from backtest.data.bars import Bars
from backtest.errors import StoreError
from backtest.identity import (
    canonical,
    code_hash,
    fold_id,
    provenance,
    rows_hash,
    run_id,
    study_id,
    study_settings,
)


def ident(*overrides, tables=None):
    return study_id(parse(tables or {}, overrides), code="code")


@pytest.mark.parametrize(
    "override",
    [
        "study.name=other",
        "study.seeds=[7, 8, 9]",
        "study.instruments=['ES']",
        "runtime.device=gpu",
        "runtime.workers=9",
        "learner.gamma=0.8",  # the default, written out
    ],
)
def test_what_cannot_change_a_row_keeps_the_study(override):
    assert ident(override) == ident()


@pytest.mark.parametrize(
    "override",
    [
        "learner.gamma=0.9",
        "folds.cron=0 0 1 * *",
        "folds.end='2018-12-31'",
        "features.adx_seed=wilder",
        "market.fill=close",
        "reward.w_dsr=0.5",
        "evaluation.bootstrap=10",
        "audit.horizons=[100]",
        "instrument.commission=1.0",
        "instruments.SP500.max_position=3",
    ],
)
def test_what_can_change_a_row_makes_a_new_study(override):
    assert ident(override) != ident()


def test_every_section_counts_but_runtime():
    settings = study_settings(parse({}))
    assert "runtime" not in settings and settings["study"] == {}
    assert {"folds", "learner", "reward", "market", "network", "instrument"} <= settings.keys()


def test_order_of_keys_and_integer_floats_do_not_count():
    one = {"learner": {"gamma": 0.9, "per_beta": 1}, "network": {"atoms": 21}}
    two = {"network": {"atoms": 21}, "learner": {"per_beta": 1.0, "gamma": 0.9}}
    assert ident(tables=one) == ident(tables=two)


def test_canonical_json_is_one_text():
    assert canonical({"b": 1, "a": [0.1, "é"]}) == '{"a":[0.1,"é"],"b":1}'
    with pytest.raises(ValueError):
        canonical(float("nan"))


def test_known_ids():
    # printf '["s","ES","2001","h"]' | sha256sum
    assert fold_id("s", "ES", "2001", "h") == "bd5c0b5b080a3a58"
    assert len(study_id(parse({}))) == 16 and set(study_id(parse({}))) <= set("0123456789abcdef")


@pytest.mark.parametrize("i", range(4))
def test_a_fold_id_depends_on_all_four(i):
    parts = ["study", "ES", "2001-01-01", "hash"]
    other = [*parts[:i], "x", *parts[i + 1 :]]
    assert fold_id(*other) != fold_id(*parts)


def test_code_hash_sees_contents_and_names_not_line_ends(tmp_path):
    folder = tmp_path / "code"
    (folder / "kernels").mkdir(parents=True)
    (folder / "a.py").write_bytes(b"x = 1\n")
    (folder / "kernels" / "b.cl").write_bytes(b"int x;\n")
    (folder / "notes.txt").write_bytes(b"not code")

    def fresh():
        code_hash.cache_clear()
        return code_hash((folder,))

    first = fresh()
    (folder / "notes.txt").write_bytes(b"other")
    (folder / "a.py").write_bytes(b"x = 1\r\n")
    assert fresh() == first
    (folder / "kernels" / "b.cl").write_bytes(b"int y;\n")
    changed = fresh()
    assert changed != first
    (folder / "kernels" / "b.cl").rename(folder / "b.cl")
    assert fresh() not in (first, changed)
    (folder / "schema.sql").write_text("SELECT 1")
    assert len({first, changed, fresh()}) == 3
    code_hash.cache_clear()
    with pytest.raises(StoreError, match="code folder is missing"):
        code_hash((tmp_path / "none",))


def test_the_study_follows_the_code():
    assert study_id(parse({}), "one") != study_id(parse({}), "two")
    assert study_id(parse({})) == study_id(parse({}), code_hash())


def bars(n, seed=0):
    close = 100 + np.cumsum(np.random.default_rng(seed).normal(size=n))
    return Bars(
        instrument="ES",
        time=np.arange(n, dtype=np.int64) * 10**9,
        open=close,
        high=close,
        low=close,
        close=close,
        volume=np.ones(n),
        roll=np.zeros(n, bool),
        session=np.arange(n, dtype=np.int32),
    )


def test_later_bars_do_not_count_and_earlier_ones_do():
    short, long = bars(50), bars(80)
    assert rows_hash(short, 50) == rows_hash(long, 50) == rows_hash(short, len(short))
    assert rows_hash(short, 49) != rows_hash(short, 50)
    assert rows_hash(bars(50, seed=1), 50) != rows_hash(short, 50)
    assert rows_hash(short, 0) == rows_hash(bars(50, seed=1), 0)
    with pytest.raises(StoreError, match=r"rows \[0, 51\) asked of 50 bars"):
        rows_hash(short, 51)


@pytest.mark.parametrize("column", ["time", "open", "high", "low", "close", "volume", "session"])
def test_every_column_counts(column):
    one, two = bars(10), bars(10)
    changed = getattr(two, column).copy()
    changed[4] += 1 if column != "time" else 1_000
    object.__setattr__(two, column, changed)
    assert rows_hash(one, 4) == rows_hash(two, 4)
    assert rows_hash(one, 5) != rows_hash(two, 5)


def test_run_ids_are_new_and_sort_by_time():
    ids = [run_id() for _ in range(50)]
    assert len(set(ids)) == 50
    assert [i[:20] for i in ids] == sorted(i[:20] for i in ids)


def test_provenance_names_what_ran():
    found = provenance()
    assert found.code_hash == code_hash()
    assert {"python", "numpy", "torch", "duckdb", "pyarrow"} <= found.library_versions.keys()
    assert "pytest" not in found.library_versions  # a development tool changes no row
    assert found.package_version[0].isdigit() and found.host_os
