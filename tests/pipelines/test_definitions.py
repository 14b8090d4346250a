"""What the code server loads: from the repository root, from a lake, and what follows a run."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest
import yaml

from assets.partitions import INSTRUMENTS
from assets.resources import RUN_TAG
from backtest.errors import ConfigError
from backtest.experiment import Experiment
from backtest.lake import Lake
from backtest.publication import publish
from backtest.queries import query
from pipelines import home, sensors
from pipelines.build import definitions, experiment_resource
from pipelines.home import Frozen
from tests.study import FOLDS, configuration, copied

ROOT = Path(__file__).resolve().parents[2]
JOBS = {
    "ingest": {"raw_bars", "bars", "reward_audit"},
    "compute_features": {"features"},
    "new_fold": {"experience", "policy", "skill_bank", "fold_result"},
    "publish": {"walk_forward", "report"},
}
BLOCKING = {
    ("bars", "time_order"),
    ("bars", "no_nan"),
    ("features", "no_nan"),
    ("reward_audit", "audit_order"),
    ("experience", "fold_disjoint"),
    ("experience", "kernel_equals_oracle"),
    ("skill_bank", "bank_matches_weights"),
    ("skill_bank", "gate_ran"),
    ("fold_result", "equity_reconciles"),
    ("fold_result", "not_ruined"),
}


@pytest.fixture(scope="module")
def frozen(study):
    return Frozen(study.config, study.lake, "tests")


@pytest.fixture(scope="module")
def defs(frozen):
    return definitions(frozen)


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as opened:
        opened.add_dynamic_partitions(INSTRUMENTS.name, ["ONE", "TWO"])
        yield opened


def test_the_four_jobs_hold_every_asset_once(defs):
    found = {
        name: {
            key.to_user_string()
            for key in defs.resolve_job_def(name).asset_layer.selected_asset_keys
        }
        for name in JOBS
    }
    assert found == JOBS
    defs.get_repository_def().load_all_definitions()


def test_the_checks_that_stop_what_follows_are_blocking(defs):
    checks = {
        (spec.asset_key.to_user_string(), spec.name): spec.blocking
        for assets in defs.assets
        for spec in assets.check_specs
    }
    assert {key for key, blocking in checks.items() if blocking} == BLOCKING
    assert set(checks) - BLOCKING == {
        ("policy", "range_holds"),
        ("policy", "control_fails"),
        ("walk_forward", "no_fold_missing"),
        ("walk_forward", "results_whole"),
    }


def test_every_asset_has_code_version_group_and_description(defs):
    for assets in defs.assets:
        for spec in assets.specs:
            assert spec.code_version and spec.description
            assert spec.group_name in ("data", "folds", "results")


@pytest.mark.parametrize("command", [["-m", "dagster", "definitions", "validate"]])
def test_the_workspace_loads_without_a_lake(tmp_path, command):
    """From the repository root, with no variable set and no lake: the smoketest is shown."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DAGSTER")}
    found = subprocess.run(
        [sys.executable, *command, "-w", str(ROOT / "workspace.yaml"), "--log-level", "error"],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_a_code_server_shows_the_experiment_of_its_home(tmp_path, monkeypatch):
    lake = Lake(tmp_path / "lake")
    assert home.saved(lake).source == "profile smoketest"
    config = configuration("learner.gamma=0.5")
    folder = home.prepare(Frozen(config, lake, "my.toml", ("learner.gamma=0.5",)))
    monkeypatch.setenv("DAGSTER_HOME", str(folder))
    found = home.saved(home.served_lake())
    assert found == Frozen(config, lake, "my.toml", ("learner.gamma=0.5",))
    monkeypatch.delenv("DAGSTER_HOME")
    monkeypatch.chdir(tmp_path)
    assert home.served_lake() == lake  # ./lake


def test_the_home_gets_the_shipped_settings_once(tmp_path):
    frozen = Frozen(configuration(), Lake(tmp_path / "lake"), "my.toml")
    settings = home.prepare(frozen) / "dagster.yaml"
    shipped = yaml.safe_load(settings.read_text())
    assert shipped["telemetry"] == {"enabled": False} and shipped["nux"] == {"enabled": False}
    assert shipped["run_monitoring"]["free_slots_after_run_end_seconds"] == 60
    settings.write_text("telemetry: {enabled: false}\n")
    home.prepare(frozen)
    assert settings.read_text() == "telemetry: {enabled: false}\n"  # the user's own


def test_overrides_of_a_launch_apply_but_cannot_move_the_partitions(frozen):
    resource = experiment_resource(frozen)
    changed = resource.model_copy(update={"overrides": ["learner.gamma=0.3"]})
    assert changed.open().config.learner.gamma == 0.3
    assert resource.open() == Experiment(frozen.config, frozen.lake)
    again = experiment_resource(Frozen(frozen.config, frozen.lake, "", ("folds.train=2",)))
    assert again.open() == resource.open()  # that one is in the snapshot already
    for key in ("folds.train=3", 'study.instruments=["TWO"]'):
        with pytest.raises(ConfigError, match="are the partitions"):
            resource.model_copy(update={"overrides": [key]}).open()


def test_the_schedule_ingests_every_instrument_at_the_cron_of_the_folds(defs, tmp_path):
    schedule = defs.resolve_schedule_def("new_window")
    assert schedule.cron_schedule == "0 0 * * 1"
    moment = datetime(2000, 2, 28, tzinfo=UTC)
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        context = dg.build_schedule_context(
            instance=instance,
            scheduled_execution_time=moment,
            repository_def=defs.get_repository_def(),
        )
        requests = schedule.evaluate_tick(context).run_requests
    assert [r.partition_key for r in requests] == ["ONE", "TWO"]
    assert requests[0].run_key == "ONE|2000-02-28T00:00"


def test_after_ingestion_comes_every_window_as_one_run(study):
    request = sensors.window_request(study, "ONE")
    assert request.job_name == "compute_features"
    keys = [key for key, window in study.windows("ONE").items() if window]
    assert [request.tags[tag] for tag in sensors.RANGE] == [f"{keys[0]}|ONE", f"{keys[-1]}|ONE"]


def test_after_features_come_the_complete_folds_without_a_result(study):
    """Two of the three complete folds have theirs; the partial one is not asked for."""
    (request,) = sensors.fold_requests(study, "ONE")
    assert request.job_name == "new_fold" and str(request.partition_key) == f"{FOLDS[2]}|ONE"
    fold_id = study.fold_id("ONE", study.fold("ONE", FOLDS[2]))
    assert request.run_key == f"{FOLDS[2]}|ONE|{fold_id}"


def test_publication_waits_for_the_last_fold(instance):
    run = dg.DagsterRun(job_name="new_fold", run_id="1" * 36)
    assert sensors.publication(instance, run).job_name == "publish"
    instance.add_run(
        dg.DagsterRun(job_name="new_fold", run_id="2" * 36, status=dg.DagsterRunStatus.STARTED)
    )
    assert isinstance(sensors.publication(instance, run), dg.SkipReason)


def test_the_sensor_names_the_instrument_of_a_run():
    tags = {"dagster/partition/instrument": "ONE"}
    assert sensors.instrument_of(dg.DagsterRun(job_name="new_fold", tags=tags)) == "ONE"
    tags = dict.fromkeys(sensors.RANGE, "2000-02-28|TWO")
    assert sensors.instrument_of(dg.DagsterRun(job_name="compute_features", tags=tags)) == "TWO"


def test_a_failed_run_is_recorded_and_the_others_are_published(study, tmp_path, instance):
    own = copied(study, tmp_path / "lake")
    defs = definitions(Frozen(own.config, own.lake, "tests"))
    tags = {
        "dagster/partition": f"{FOLDS[2]}|ONE",
        "dagster/partition/fold": FOLDS[2],
        "dagster/partition/instrument": "ONE",
    }
    failed = dg.DagsterEventType.RUN_FAILURE.value
    for extra, jobs in (({RUN_TAG: "its own"}, [None]), ({}, ["publish"])):
        run = dg.DagsterRun(job_name="new_fold", run_id="1" * 36, tags={**tags, **extra})
        context = dg.build_run_status_sensor_context(
            sensor_name="failed_fold",
            dagster_event=dg.DagsterEvent(failed, "new_fold", message="the device is gone"),
            dagster_instance=instance,
            dagster_run=run,
        ).for_run_failure()
        answer = list(defs.resolve_sensor_def("failed_fold")(context))
        assert [getattr(one, "job_name", None) for one in answer] == jobs
    publish(own.lake)
    sql = f"SELECT status, reason FROM fold WHERE fold_key = '{FOLDS[2]}' AND instrument = 'ONE'"
    assert query(own.lake, sql).rows == [{"status": "failed", "reason": "the device is gone"}]
    assert query(own.lake, "SELECT status FROM run").rows == [{"status": "failed"}]
