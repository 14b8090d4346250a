"""`run_study` on real kernels: what a run leaves, and what the next one does with it."""

import shutil

import pytest

import opencl.fold_result
from backtest.errors import DataError
from backtest.queries import query
from backtest.summary import summarize
from tests.pipelines import runs

TABLES = ("equity", "trade", "metric", "policy", "curve", "trial", "trial_return", "feature_stat")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return runs.bars_file(tmp_path_factory.mktemp("source") / "one.parquet", runs.BARS)


@pytest.fixture(scope="module")
def reference(tmp_path_factory, source):
    """The study after its first run; do not write to it."""
    experiment = runs.study(tmp_path_factory.mktemp("reference"), source)
    events = []
    outcome = runs.run(experiment, tell=events.append)
    return experiment, outcome, events, runs.rows(experiment)


@pytest.fixture
def copy(tmp_path, reference, source):
    """The study on a copy of the lake, to write to."""
    shutil.copytree(reference[0].lake.root, tmp_path / "lake")
    return runs.study(tmp_path / "lake", source)


def test_a_run_publishes_every_fold_and_no_check_fails(reference):
    experiment, outcome, _, rows = reference
    assert outcome.ok and outcome.status == "complete" and outcome.checks == ()
    assert [(f.key, f.status) for f in outcome.folds] == [(k, "made") for k in runs.FOLDS]
    assert outcome.store == experiment.lake.store and outcome.store.is_file()
    found = sorted((row["fold_key"], row["status"]) for row in rows["fold"])
    assert found == [(key, "complete") for key in runs.FOLDS]
    assert all(rows[name] for name in TABLES)
    assert {r["study_id"] for r in rows["reward_audit"]} == {experiment.study_id}
    assert summarize(experiment.lake)[0].folds == {"complete": 2}


def test_a_run_says_who_computed_it(reference):
    experiment, outcome, _, _ = reference
    (row,) = query(experiment.lake, "SELECT * FROM run").rows
    assert row["run_id"] == outcome.run_id and row["study_id"] == experiment.study_id
    assert row["status"] == "complete" and row["finished"] > row["started"]
    assert row["device"] and row["driver"] and row["command"] == "skillwalk run"


def test_progress_rises_to_the_publication(reference):
    _, _, events, _ = reference
    shares = [event.share for event in events]
    assert shares == sorted(shares) and 0 <= shares[0] and shares[-1] <= 1
    assert [e.kind for e in events if e.kind == "problem"] == []
    assert sum(e.kind == "trial" for e in events) == 2 * 2  # folds x epochs, one seed
    assert events[-1].text == "publish"


def test_the_report_needs_no_network(reference):
    experiment, _, _, _ = reference
    folder = experiment.lake.reports(experiment.study_id)
    page = (folder / "ONE.html").read_text(encoding="utf-8")
    assert "ONE out of sample" in page and (folder / "plotly.min.js").is_file()
    assert "https://" not in page


def test_a_second_run_computes_nothing_and_changes_no_row(copy, reference):
    outcome = runs.run(copy)
    assert outcome.ok and {fold.status for fold in outcome.folds} == {"kept"}
    assert runs.rows(copy) == reference[3]
    assert runs.count(copy, "run") == 2


def test_appended_bars_add_a_fold_and_leave_the_others_alone(copy, reference, source):
    """The case of a tool whose earlier weeks changed when a week was added."""
    before = source.read_bytes()
    try:
        runs.bars_file(source, runs.LONGER)
        outcome = runs.run(copy)
    finally:
        source.write_bytes(before)
    assert [fold.status for fold in outcome.folds] == ["kept", "kept", "made"]
    assert outcome.folds[-1].key == runs.NEXT
    after = runs.rows(copy)
    folds = {row["fold_id"] for row in reference[3]["fold"]}
    for table in ("fold", *TABLES):
        if table in ("trial_return", "metric"):
            continue
        assert [r for r in after[table] if r["fold_id"] in folds] == reference[3][table], table
    scores = [r for r in after["metric"] if r["scope_id"] in folds]
    assert scores == [r for r in reference[3]["metric"] if r["scope"] == "fold"]


def test_a_fold_that_fails_is_recorded_and_the_next_run_makes_it(
    tmp_path, source, reference, monkeypatch
):
    experiment = runs.study(tmp_path / "lake", source)
    real, events = opencl.fold_result.evaluate_fold, []

    def broken(study, instrument, key, run_id):
        if key == runs.FOLDS[0]:
            raise DataError("bar 7 is broken")
        return real(study, instrument, key, run_id)

    monkeypatch.setattr(opencl.fold_result, "evaluate_fold", broken)
    outcome = runs.run(experiment, tell=events.append)
    assert outcome.status == "failed" and not outcome.ok
    assert [fold.status for fold in outcome.folds] == ["failed", "made"]
    assert "bar 7 is broken" in outcome.folds[0].reason
    assert any("bar 7 is broken" in e.text for e in events if e.kind == "problem")
    assert [check.name for check in outcome.checks] == ["no_fold_missing"]
    found = query(experiment.lake, "SELECT fold_key, status, reason FROM fold ORDER BY 1").rows
    assert [row["status"] for row in found] == ["failed", "complete"]
    assert "bar 7 is broken" in found[0]["reason"]
    assert query(experiment.lake, "SELECT status FROM run").rows == [{"status": "failed"}]

    monkeypatch.setattr(opencl.fold_result, "evaluate_fold", real)
    outcome = runs.run(experiment)
    assert (
        outcome.ok
        and [fold.status for fold in outcome.folds] == ["kept", "made"]
        or [fold.status for fold in outcome.folds] == ["made", "kept"]
    )
    assert runs.rows(experiment) == reference[3]


def test_force_makes_every_fold_again(copy, reference):
    outcome = runs.run(copy, force=True)
    assert [fold.status for fold in outcome.folds] == ["made", "made"]
    assert runs.rows(copy) == reference[3]


def test_a_reward_that_fails_its_audit_is_not_trained_on(tmp_path, source):
    experiment = runs.study(tmp_path / "lake", source, "reward.formula=composite")
    outcome = runs.run(experiment)
    assert outcome.status == "failed" and outcome.folds == () and outcome.store is None
    assert [(check.asset, check.name) for check in outcome.checks] == [
        ("reward_audit", "audit_order")
    ]


def test_more_seeds_are_added_to_a_finished_fold(copy, source, reference):
    more = runs.study(copy.lake.root, source, "study.seeds=[0, 1]")
    outcome = runs.run(more)
    assert {fold.status for fold in outcome.folds} == {"made"}
    kept = [row for row in runs.rows(more)["policy"] if row["seed"] == 0]
    assert kept == reference[3]["policy"]
    assert runs.count(more, "policy") == 4
