"""Single steps of a fold, run by Dagster: what they refuse, and folds with nothing to compute."""

import shutil

import dagster as dg
import pyarrow.parquet as pq
import pytest

from assets.partitions import INSTRUMENTS, partition
from backtest.errors import DataError
from backtest.lake import read_table
from backtest.manifest import FoldHeader
from backtest.store import fold_result
from opencl import plays
from pipelines.build import definitions
from pipelines.home import Frozen
from pipelines.runner import InlineRunner
from pipelines.sensors import RANGE
from tests.study import FOLDS, copied

BEYOND = "2001-01-01"  # a Monday after the last bar


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as opened:
        opened.add_dynamic_partitions(INSTRUMENTS.name, ["ONE", "TWO"])
        yield opened


@pytest.fixture
def writable(study, tmp_path):
    return copied(study, tmp_path / "lake")


def launch(experiment, instance, key, *assets, to=None):
    """Materialise assets of one fold, or of those from `key` to `to` as one run."""
    ends = [str(partition("ONE", end)) for end in (key, to)] if to else []
    with InlineRunner() as trials:
        defs = definitions(Frozen(experiment.config, experiment.lake, "tests"), trials)
        return defs.resolve_job_def("new_fold").execute_in_process(
            instance=instance,
            partition_key=None if ends else partition("ONE", key),
            tags=dict(zip(RANGE, ends, strict=bool(ends))),
            asset_selection=[dg.AssetKey(name) for name in assets] or None,
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        )


def folder(experiment, of):
    fold = experiment.fold("ONE", FOLDS[0])
    fold_id = experiment.fold_id("ONE", fold)
    return of(experiment.study_id, "ONE", FOLDS[0], fold_id)


def test_a_fold_without_bars_is_materialised_as_skipped(study, instance):
    found = launch(study, instance, BEYOND)
    assert found.success
    for asset in ("experience", "policy", "skill_bank", "fold_result"):
        (event,) = found.asset_materializations_for_node(asset)
        assert event.metadata["status"].value == "skipped"
        assert event.metadata["reason"].value == "no bars"
    assert all(check.passed for check in found.get_asset_check_evaluations())
    assert not study.lake.experience(study.study_id, "ONE", BEYOND, "any").parent.exists()


def test_experience_holds_every_decision_of_every_seed(writable, instance):
    found = launch(writable, instance, FOLDS[0], "experience")
    (event,) = found.asset_materializations_for_node("experience")
    files = sorted(folder(writable, writable.lake.experience).glob("*.parquet"))
    assert [path.name for path in files] == ["seed_0.parquet", "seed_1.parquet"]
    tables = [pq.read_table(path) for path in files]
    assert sum(map(len, tables)) == event.metadata["dagster/row_count"].value
    fold = writable.fold("ONE", FOLDS[0])
    for table in tables:
        assert {"dsr", "pnl_z", "reward", "direction", "equity"} <= set(table.column_names)
        bars = table["bar"].to_numpy()
        assert fold.train.start <= bars.min() and bars.max() < fold.train.stop - 1
    passed = {check.check_name: check.passed for check in found.get_asset_check_evaluations()}
    assert passed == {"fold_disjoint": True, "kernel_equals_oracle": True}


def test_experience_and_policy_stand_on_one_foundation(writable, instance):
    """Whichever comes first lays it; here that is experience."""
    policies = folder(writable, writable.lake.policies)
    shutil.rmtree(policies)
    launch(writable, instance, FOLDS[0], "experience")
    paths = [policies / f"foundation_{seed}.safetensors" for seed in (0, 1)]
    laid = [(path.stat().st_mtime_ns, path.read_bytes()) for path in paths]
    found = launch(writable, instance, FOLDS[0], "policy")
    assert [(path.stat().st_mtime_ns, path.read_bytes()) for path in paths] == laid
    (event,) = found.asset_materializations_for_node("policy")
    rows = [record.data for record in event.metadata["forecasts"].value.records]
    assert [row["seed"] for row in rows] == [0, 1]
    assert event.metadata["aux_auc"].value == pytest.approx(
        (rows[0]["aux_auc"] + rows[1]["aux_auc"]) / 2, rel=1e-4
    )
    passed = {check.check_name: check.passed for check in found.get_asset_check_evaluations()}
    assert passed["control_fails"]


def test_a_policy_that_began_with_other_experience_is_refused(writable, instance):
    launch(writable, instance, FOLDS[0], "experience")
    assert launch(writable, instance, FOLDS[0], "policy").success
    path = folder(writable, writable.lake.experience) / "seed_1.parquet"
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({b"skillwalk.digest": b"other"}), path)
    with pytest.raises(DataError, match="seed 1 did not begin with this experience"):
        launch(writable, instance, FOLDS[0], "policy")


def test_a_policy_without_experience_is_refused(writable, instance):
    with pytest.raises(DataError, match="materialise asset experience of ONE 2000-02-21"):
        launch(writable, instance, FOLDS[0], "policy")


def test_an_evaluation_without_policy_fails(writable, instance):
    shutil.rmtree(folder(writable, writable.lake.policies))
    with pytest.raises(DataError, match="materialise asset policy"):
        launch(writable, instance, FOLDS[0], "fold_result")


def test_results_of_a_range_of_folds_are_one_run_and_one_launch(writable, instance, monkeypatch):
    launches = []
    real = plays.play_together
    monkeypatch.setattr(plays, "play_together", lambda e: launches.append(len(e)) or real(e))
    before = [fold_files(writable, key) for key in FOLDS[:2]]
    found = launch(writable, instance, FOLDS[0], "fold_result", to=FOLDS[1])
    events = found.asset_materializations_for_node("fold_result")
    assert {event.partition for event in events} == {f"{key}|ONE" for key in FOLDS[:2]}
    assert all(event.metadata["dagster/row_count"].value == 7 * 168 for event in events)
    assert launches == [4]  # two folds of two seeds
    assert [fold_files(writable, key) for key in FOLDS[:2]] == before
    (check, other) = found.get_asset_check_evaluations()
    assert check.passed and other.passed and "holds in all 2 folds" in check.description


def fold_files(experiment, key):
    """Return the rows of equity and metric of a fold's result."""
    fold_id = experiment.fold_id("ONE", experiment.fold("ONE", key))
    found = fold_result(experiment.lake, FoldHeader(experiment.study_id, "ONE", key, fold_id, ""))
    return [read_table(found.path(name)).to_pylist() for name in ("equity", "metric")]
