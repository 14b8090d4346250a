"""`run` and `ab` around the execution: what is refused before it, what is shown after it."""

import json

import pytest
from typer.testing import CliRunner

from backtest.config import profile
from backtest.lake import Lake
from backtest.manifest import PartHeader
from backtest.publication import publish
from backtest.store import write_fold_result, write_part
from pipelines import cli
from pipelines.commands.compare import two_values
from pipelines.outcome import FailedCheck, FoldOutcome, Progress, RunOutcome
from tests.backtest.fold_rows import equity_rows, fold_row, header, metric_row


def invoke(*arguments):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


class Execution:
    """Stands in for `run_study`: publishes one fold whose Sharpe depends on the setting."""

    def __init__(self, status="complete", checks=()):
        self.status, self.checks, self.calls = status, checks, []

    def __call__(self, experiment, *, tell, **options):
        self.calls.append((experiment, options))
        tell(Progress(0.5, "half", "step"))
        tell(Progress(0.6, "FAIL something", "problem"))
        sharpe = experiment.config.reward.loss_aversion
        rows = [metric_row("sharpe", sharpe, seed=seed, variant="chosen") for seed in (0, 1)]
        rows += [metric_row("net_return", 0.1, seed=seed, variant="chosen") for seed in (0, 1)]
        rows += [metric_row("exposure", 0.5, seed=seed, variant="chosen") for seed in (0, 1)]
        rows += [metric_row("n_trades", 7, seed=seed, variant="chosen") for seed in (0, 1)]
        study = experiment.study_id
        tables = {"fold": [fold_row()], "metric": rows, "equity": equity_rows([1.0, 2.0])}
        write_fold_result(experiment.lake, header(study=study), tables)
        over = [
            metric_row("net_return", 0.1, variant="chosen"),
            metric_row("p_improvement_over_buy_and_hold", 0.3, variant="chosen"),
            metric_row("net_return", 0.2, seed=-1, variant="buy_and_hold", kind="baseline"),
        ]
        write_part(experiment.lake, PartHeader("w", "r", study, "SP500"), {"metric": over})
        publish(experiment.lake)
        folds = (FoldOutcome("SP500", "2001-01-01", "made"),)
        store = experiment.lake.store if self.status != "cancelled" else None
        return RunOutcome("run-1", study, self.status, folds, self.checks, store)


@pytest.fixture
def execution(monkeypatch):
    stand_in = Execution()
    monkeypatch.setattr("pipelines.execution.run_study", stand_in)
    return stand_in


def test_run_ends_with_the_summary_and_how_to_go_on(execution, tmp_path):
    out, lake = tmp_path / "run.json", tmp_path / "lake"
    done = invoke("run", "--profile", "smoketest", "--lake", lake, "--json", out)
    assert done.exit_code == 0, done.output
    assert "did not beat buy and hold: P = 0.30, net return 10.0% against 20.0%" in done.stdout
    assert f" ui --lake {lake}" in done.stdout
    assert f' sql --lake {lake} "SELECT variant, value' in done.stdout
    assert done.stdout.splitlines()[-1] == "run run-1 complete: folds 1 made"
    assert "walk-forward: 50%, half" in done.stderr
    assert "FAIL something" in done.stderr
    value = json.loads(out.read_text())
    assert value["run"]["folds"][0]["status"] == "made"
    assert value["instruments"][0]["verdict"].startswith("Out of sample")
    ((experiment, options),) = execution.calls
    assert options["source"] == "profile smoketest"
    assert options["overrides"] == []
    assert not options["force"]
    assert experiment.lake == Lake(lake)


def test_the_example_query_works(execution, tmp_path):
    done = invoke("run", "--lake", tmp_path / "lake")
    statement = done.stdout.split('"')[1]
    assert invoke("sql", "--lake", tmp_path / "lake", statement).exit_code == 0


def test_a_new_formula_says_its_loss_aversion(execution, tmp_path):
    change = ("--set", "reward.formula=composite")
    done = invoke("run", *change, "--force", "--accept-reward", "--lake", tmp_path / "lake")
    assert "reward.formula = composite, reward.loss_aversion = 1.5" in done.stdout
    _, options = execution.calls[0]
    assert options["overrides"] == ["reward.formula=composite"]
    assert options["force"]
    assert options["accept_reward"]


@pytest.mark.parametrize(("status", "code"), [("complete", 1), ("failed", 1), ("cancelled", 130)])
def test_exit_codes_of_runs(monkeypatch, tmp_path, status, code):
    check = FailedCheck("bars", "no_nan", "SP500", "3 values", warning=False)
    stand_in = Execution(status, (check,))
    monkeypatch.setattr("pipelines.execution.run_study", stand_in)
    done = invoke("run", "--lake", tmp_path / "lake")
    assert done.exit_code == code
    last = f"run run-1 {status}: folds 1 made, 1 check FAILS"
    assert done.stdout.splitlines()[-1] == last


def test_an_accepted_reward_does_not_fail_the_run(monkeypatch, tmp_path):
    check = FailedCheck("reward_audit", "audit_order", "SP500", "order FAILS", warning=False)
    monkeypatch.setattr("pipelines.execution.run_study", Execution("complete", (check,)))
    assert invoke("run", "--lake", tmp_path / "lake").exit_code == 1
    assert invoke("run", "--accept-reward", "--lake", tmp_path / "lake").exit_code == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("folds.train=30",), "the 5031 bars hold 17"),
        (("instruments.SP500.source=none.csv",), "none.csv: no such file"),
        (("runtime.device=abacus",), 'no OpenCL device fits device = "abacus"'),
        (("instruments.SP500.source=short.csv", "instruments.SP500.bar=1d"), "the plan needs"),
        (("instruments.SP500.source=bad.csv", "instruments.SP500.bar=1d"), "row 3: "),
        (("study.instruments=['NQ']",), "source is empty"),
    ],
)
@pytest.mark.parametrize("command", [("run",), ("ab", "learner.gamma=0.7,0.8")])
def test_what_cannot_run_is_refused_before_anything_is_written(
    execution, tmp_path, monkeypatch, command, changes, message
):
    monkeypatch.chdir(tmp_path)
    head = "time,open,high,low,close\n2012-01-03,1,2,0.5,1\n"
    (tmp_path / "short.csv").write_text(head + "2012-01-04,1,2,0.5,1\n")
    (tmp_path / "bad.csv").write_text(head + "2012-01-04,1,2,0.5,\n")
    overrides = [part for change in changes for part in ("--set", change)]
    done = invoke(*command, *overrides)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.startswith("error: ")
    assert not (tmp_path / "lake").exists()
    assert execution.calls == []


def test_ab_compares_two_studies_on_one_lake(execution, tmp_path):
    out = tmp_path / "ab.json"
    done = invoke(
        *("ab", "reward.formula=composite,calibrated", "--lake", tmp_path / "lake", "--json", out)
    )
    assert done.exit_code == 0, done.output
    (first, options), (second, _) = execution.calls
    assert first.study_id != second.study_id
    assert options["accept_reward"]
    assert options["overrides"] == ["reward.formula=composite"]
    line = f"reward.formula=composite: study {first.study_id}, reward.formula = composite, "
    assert f"{line}reward.loss_aversion = 1.5\n" in done.stdout
    assert "reward.loss_aversion = 1.25" in done.stdout
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines() if "%" in line}
    # runs, five quantiles, the middle half; then return, exposure, trades and mean position
    assert rows["reward.formula=composite"][1:8] == ["2", *["1.50"] * 6]
    assert rows["reward.formula=calibrated"][-4:] == ["10.0%", "50%", "7.0", "1"]
    assert done.stdout.splitlines()[-1] == (
        "ab SP500: reward.formula=composite is better: P(reward.formula=calibrated > "
        "reward.formula=composite) = 0.00 [0.00, 0.00] over 1 fold x 2 seeds"
    )
    (value,) = json.loads(out.read_text())["instruments"]
    assert value["arms"][0]["sharpe"] == [[1.5], [1.5]]
    assert value["probability_of_improvement"]["value"] == 0.0


def test_ab_of_two_settings_runs_their_product(execution, tmp_path):
    """What has no alpha runs first: the others are judged against it."""
    out, lake = tmp_path / "ab.json", tmp_path / "lake"
    settings = ("aux.alpha=true,false", "reward.loss_aversion=1.5,2.5")
    done = invoke("ab", *settings, "--lake", lake, "--json", out)
    assert done.exit_code == 0, done.output
    ran = [options["overrides"] for _, options in execution.calls]
    assert ran == [
        [f"aux.alpha={alpha}", f"reward.loss_aversion={loss}"]
        for alpha in ("false", "true")
        for loss in ("1.5", "2.5")
    ]
    value = json.loads(out.read_text())
    assert value["setting"] == " ".join(settings)
    (found,) = value["instruments"]
    assert [arm["label"] for arm in found["arms"]] == [
        f"aux.alpha={alpha} reward.loss_aversion={loss}"
        for alpha in ("true", "false")
        for loss in ("1.5", "2.5")
    ]
    chances = [arm["probability_of_improvement"]["value"] for arm in found["arms"][1:]]
    assert chances == [1.0, 0.5, 1.0]
    assert done.stdout.count("P(aux.alpha=") == 2 * 3  # beside the table, and at the end


def test_ab_takes_the_file_of_an_experiment_behind_its_settings(execution, tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(profile("smoketest").read_text())
    lake = tmp_path / "lake"
    done = invoke("ab", "learner.gamma=0.7,0.8", path, "--lake", lake)
    assert done.exit_code == 0, done.output
    assert [options["source"] for _, options in execution.calls] == [str(path)] * 2
    assert invoke("ab", path).exit_code == 2
    both = invoke("ab", "learner.gamma=0.7,0.8", path, "--profile", "smoketest")
    assert both.exit_code == 2 and "give one of the two" in both.stderr


def test_ab_ends_with_the_run_that_failed(monkeypatch, tmp_path):
    stand_in = Execution("failed")
    monkeypatch.setattr("pipelines.execution.run_study", stand_in)
    done = invoke("ab", "learner.gamma=0.7,0.8", "--lake", tmp_path / "lake")
    assert done.exit_code == 1
    assert len(stand_in.calls) == 1


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("reward.formula", "one setting and two values"),
        ("reward.formula=composite", "one setting and two values"),
        ("reward.formula=a,b,c", "one setting and two values"),
        ("formula=a,b", "one setting and two values"),
        ("reward.formula=composite,best", "[reward.formula]"),
        ("reward.nothing=1,2", "[reward.nothing] unknown key"),
        ("learner.gamma=0.8,0.80", "both values give the same study"),
        ("learner.gamma=0.8,0.8", "both values give the same study"),
        ("runtime.workers=1,2", "runtime.workers does not change a result"),
        ("runtime.workers=1,2 learner.gamma=0.7,0.8", "two arms are the same study"),
        ("learner.gamma=0.7,0.8 learner.gamma=0.6,0.9", "two different ones"),
        ("a.b=1,2 a.c=1,2 a.d=1,2", "two different ones"),
    ],
)
def test_ab_mistakes(execution, tmp_path, setting, message):
    done = invoke("ab", *setting.split(" "), "--lake", tmp_path / "lake")
    assert done.exit_code == 2
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a.b=1,2", ("1", "2")),
        ("a.b=[1,2], [3]", ("[1,2]", "[3]")),
        ("a.b={x=1,y=2},{}", ("{x=1,y=2}", "{}")),
        ("a.b='1,2',\"3],\"", ("'1,2'", '"3],"')),
    ],
)
def test_values_may_hold_commas(text, values):
    assert two_values(text) == ("a.b", values)
