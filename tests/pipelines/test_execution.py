"""`run_study` on real kernels: what a run leaves, and what the next one does with it."""

import shutil

import dagster as dg
import pytest

import opencl.fold_result
from assets.resources import RUN_TAG
from backtest.errors import DataError
from backtest.queries import query
from backtest.summary import summarize
from pipelines import home
from tests.pipelines import runs

BY_FOLD = ("fold", "equity", "trade", "policy", "curve", "trial", "feature_stat")


@pytest.fixture
def copy(tmp_path, reference):
    """The study on a copy of the lake, to write to."""
    shutil.copytree(reference.experiment.lake.root, tmp_path / "lake")
    return runs.study(tmp_path / "lake", reference.source)


def statuses(outcome):
    return [fold.status for fold in outcome.folds]


def test_a_run_publishes_every_fold_and_no_check_fails(reference):
    lake, outcome = reference.experiment.lake, reference.outcome
    assert outcome.ok and outcome.status == "complete" and outcome.checks == ()
    assert [fold.key for fold in outcome.folds] == list(runs.FOLDS)
    assert statuses(outcome) == ["made", "made"]
    assert outcome.store == lake.store and outcome.store.is_file()
    found = sorted((row["fold_key"], row["status"]) for row in reference.rows["fold"])
    assert found == [(key, "complete") for key in runs.FOLDS]
    assert all(reference.rows[name] for name in (*BY_FOLD, "metric", "trial_return"))
    audited = {row["study_id"] for row in reference.rows["reward_audit"]}
    assert audited == {reference.experiment.study_id}
    assert summarize(lake)[0].folds == {"complete": 2}


def test_a_run_says_who_computed_it(reference):
    (row,) = query(reference.experiment.lake, "SELECT * FROM run").rows
    assert row["run_id"] == reference.outcome.run_id
    assert row["study_id"] == reference.experiment.study_id
    assert row["status"] == "complete" and row["finished"] > row["started"]
    assert row["device"] and row["driver"] and row["command"] == "skillwalk run"


def test_progress_rises_to_the_publication(reference):
    events = reference.events
    shares = [event.share for event in events]
    assert shares == sorted(shares) and shares[0] >= 0 and shares[-1] == 1
    assert [event for event in events if event.kind == "problem"] == []
    assert sum(event.kind == "trial" for event in events) == 2 * (
        1 + 2
    )  # folds x (plan and epochs)
    assert [event.text for event in events[-2:]] == ["publish", "complete"]


def test_the_report_needs_no_network(reference):
    folder = reference.experiment.lake.reports(reference.experiment.study_id)
    page = (folder / "ONE.html").read_text(encoding="utf-8")
    assert "ONE out of sample" in page and (folder / "plotly.min.js").is_file()
    assert "https://" not in page


def test_the_home_shows_runs_partitions_and_metadata_afterwards(reference):
    """What `skillwalk run` leaves for the UI."""
    experiment = reference.experiment
    with home.instance(experiment.lake.dagster_home, ["ONE"]) as instance:
        jobs = sorted(run.job_name for run in instance.get_runs())
        assert jobs == ["compute_features", "ingest", "new_fold", "new_fold", "publish"]
        assert all(run.is_success for run in instance.get_runs())
        assert {run.tags[RUN_TAG] for run in instance.get_runs()} == {reference.outcome.run_id}
        seen = instance.get_materialized_partitions(dg.AssetKey("fold_result"))
        assert seen == {f"{key}|ONE" for key in runs.FOLDS}
        (event,) = instance.get_event_records(
            dg.EventRecordsFilter(
                dg.DagsterEventType.ASSET_MATERIALIZATION,
                dg.AssetKey("fold_result"),
                asset_partitions=[f"{runs.FOLDS[0]}|ONE"],
            )
        )
        shown = event.asset_materialization.metadata
        assert isinstance(shown["sharpe"].value, float)
        assert shown["equity_and_baselines"].value.startswith("![plot](data:image/png;base64,")
        assert shown["dagster/row_count"].value > 0
        lines = [e for r in instance.get_runs() for e in instance.all_logs(r.run_id)]
        told = [e for e in lines if e.dagster_event is None]
        assert 0 < len(told) < 20 * len(jobs)


def test_a_second_run_computes_nothing_and_changes_no_row(copy, reference):
    outcome = runs.run(copy)
    assert outcome.ok and statuses(outcome) == ["kept", "kept"]
    assert runs.rows(copy) == reference.rows
    assert runs.count(copy, "run") == 2


def test_appended_bars_add_folds_and_leave_the_others_alone(copy, reference):
    """Another tool changed earlier weeks when later ones were added."""
    before = reference.source.read_bytes()
    try:
        runs.bars_file(reference.source, runs.LONGER)
        outcome = runs.run(copy)
    finally:
        reference.source.write_bytes(before)
    assert outcome.ok and statuses(outcome) == ["kept", "kept", "made", "made"]
    after = runs.rows(copy)
    found = {row["fold_key"]: row["status"] for row in after["fold"]}
    assert found == {
        **dict.fromkeys(runs.FOLDS, "complete"),
        "2000-03-06": "complete",
        "2000-03-13": "partial",
    }
    folds = {row["fold_id"] for row in reference.rows["fold"]}
    for table in BY_FOLD:
        kept = [row for row in after[table] if row["fold_id"] in folds]
        assert kept == reference.rows[table], table
    scores = [row for row in after["metric"] if row["scope_id"] in folds]
    assert scores == [row for row in reference.rows["metric"] if row["scope"] == "fold"]


def test_a_fold_that_fails_is_recorded_and_the_next_run_makes_it(tmp_path, reference, monkeypatch):
    experiment = runs.study(tmp_path / "lake", reference.source)
    real, events = opencl.fold_result.evaluate_folds, []

    def broken(study, instrument, keys, run_id):
        if runs.FOLDS[0] in keys:
            raise DataError("bar 7 is broken")
        return real(study, instrument, keys, run_id)

    monkeypatch.setattr(opencl.fold_result, "evaluate_folds", broken)
    outcome = runs.run(experiment, tell=events.append)
    assert outcome.status == "failed" and not outcome.ok
    assert statuses(outcome) == ["failed", "made"]
    assert "bar 7 is broken" in outcome.folds[0].reason
    assert any("bar 7 is broken" in e.text for e in events if e.kind == "problem")
    assert [check.name for check in outcome.checks] == ["no_fold_missing"]
    found = query(experiment.lake, "SELECT fold_key, status, reason FROM fold ORDER BY 1").rows
    assert [row["status"] for row in found] == ["failed", "complete"]
    assert "bar 7 is broken" in found[0]["reason"]
    assert query(experiment.lake, "SELECT status FROM run").rows == [{"status": "failed"}]

    monkeypatch.setattr(opencl.fold_result, "evaluate_folds", real)
    outcome = runs.run(experiment)
    assert outcome.ok and statuses(outcome) == ["made", "kept"]
    assert runs.rows(experiment) == reference.rows


def test_force_makes_every_fold_again(copy, reference):
    outcome = runs.run(copy, force=True)
    assert statuses(outcome) == ["made", "made"]
    assert runs.rows(copy) == reference.rows


def test_a_reward_that_fails_its_audit_is_not_trained_on(tmp_path, reference):
    experiment = runs.study(tmp_path / "lake", reference.source, "reward.formula=composite")
    outcome = runs.run(experiment)
    assert outcome.status == "failed" and outcome.folds == () and outcome.store is None
    (check,) = outcome.checks
    assert (check.asset, check.name, check.warning) == ("reward_audit", "audit_order", False)
    assert not experiment.lake.experience("x", "y", "z", "w").parents[3].exists()
    sql = "SELECT formula, bool_and(order_ok) AS ok FROM reward_audit GROUP BY formula"
    assert query(experiment.lake, sql).rows == [{"formula": "composite", "ok": False}]


def test_more_seeds_are_added_to_a_finished_fold(copy, reference):
    more = runs.study(copy.lake.root, reference.source, "study.seeds=[0, 1]")
    outcome = runs.run(more)
    assert statuses(outcome) == ["made", "made"]
    kept = [row for row in runs.rows(more)["policy"] if row["seed"] == 0]
    assert kept == reference.rows["policy"]
    assert runs.count(more, "policy") == 4
