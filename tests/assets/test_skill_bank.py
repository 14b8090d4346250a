"""Asset skill_bank: what it shows of banks, what its checks refuse, and a study without banks."""

import shutil

import dagster as dg
import pytest

from assets import checks, plots, skill_bank
from assets.partitions import INSTRUMENTS, partition
from backtest.agent.bank import Bank
from backtest.errors import DataError
from backtest.experiment import Experiment
from backtest.lake import Lake, read_json, write_json
from opencl import skills, trials
from pipelines.build import definitions
from pipelines.home import Frozen
from pipelines.runner import InlineRunner
from tests.skills import KEY, NAME, PICKS, formed


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as made:
        made.add_dynamic_partitions(INSTRUMENTS.name, ["ONE", "TWO"])
        yield made


@pytest.fixture
def trained(skilled, tmp_path):
    """A study with both banks and the policies of one fold, its banks not formed yet."""
    shutil.copytree(skilled.lake.root, tmp_path, dirs_exist_ok=True)
    shutil.rmtree(tmp_path / "skills")
    return Experiment(skilled.config, Lake(tmp_path))


@pytest.fixture
def made_by_hand(monkeypatch):
    """Banks by hand in place of the stages; returns the specifications that were asked for."""
    asked = []

    def form_skills(spec, stop, log):
        assert not stop()
        log(f"seed {spec.seed}: banks", 1.0)
        asked.append(spec)
        return formed(spec, PICKS[spec.seed])

    monkeypatch.setattr(skills, "form_skills", form_skills)
    return asked


def launch(experiment, instance, key=KEY):
    with InlineRunner() as runner:
        defs = definitions(Frozen(experiment.config, experiment.lake, "tests"), runner)
        return defs.resolve_job_def("new_fold").execute_in_process(
            instance=instance,
            partition_key=partition(NAME, key),
            asset_selection=[dg.AssetKey("skill_bank")],
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        )


def metadata(found):
    (event,) = found.asset_materializations_for_node("skill_bank")
    return {name: entry.value for name, entry in event.metadata.items()}


def test_without_banks_it_says_so_and_computes_nothing(study, instance, monkeypatch):
    monkeypatch.setattr(trials, "train_seeds", None)
    found = launch(study, instance)
    shown = metadata(found)
    assert shown["banks"] == "skills.banks is empty: the only variant is none"
    assert [record.data["variant"] for record in shown["variants"].records] == ["none"]
    results = found.get_asset_check_evaluations()
    assert {check.check_name for check in results} == {"bank_matches_weights", "gate_ran"}
    assert all(check.passed and "skills.banks is empty" in check.description for check in results)


def test_banks_are_formed_for_every_seed_and_shown(trained, instance, made_by_hand):
    found = launch(trained, instance)
    assert [spec.seed for spec in made_by_hand] == [0, 1]
    shown = metadata(found)
    for picture in ("occupancy", "utility", "hit_rate"):
        assert shown[picture].startswith("![plot](data:image/png;base64,")
    rows = [record.data for record in shown["variants"].records]
    assert [row["variant"] for row in rows] == ["none", "task", "step", "both", "finetune"] * 2
    assert [row["variant"] for row in rows if row["chosen"]] == ["step", "none"]
    (both, _) = [row for row in rows if row["variant"] == "both"]
    assert (both["alpha_task"], both["alpha_step"]) == (3.0, 1.0)
    assert shown["share_of_slots_in_use"] == 0.5 and shown["share_of_seeds_with_skills"] == 0.5
    (budget, _) = [record.data for record in shown["budget"].records]
    assert budget["collect_rows"] == 100 and budget["seconds_collect"] == 0.5
    assert all(check.passed for check in found.get_asset_check_evaluations())


def test_a_bank_of_other_weights_fails_its_check(trained, instance, made_by_hand, monkeypatch):
    def spoilt(spec, stop, log):
        path = formed(spec, "none")
        summary = read_json(path)
        bank = spec.experiment.lake.root / summary["banks"]["step"]
        Bank.load(bank, summary["weight_hash"]).save(bank, "0" * 64)
        for entry in summary["variants"]:
            entry["chosen"] = False
        write_json(path, summary)
        return path

    monkeypatch.setattr(skills, "form_skills", spoilt)
    with pytest.raises(Exception, match="bank_matches_weights"):
        launch(trained, instance)


def test_policies_come_first(trained, instance, made_by_hand):
    shutil.rmtree(trained.lake.root / "policies")
    with pytest.raises(DataError, match="no policy of seed 0; materialise asset policy"):
        launch(trained, instance)
    assert made_by_hand == []


def test_what_the_checks_say():
    assert checks.bank_matches_weights({}).passed
    found = checks.bank_matches_weights({"seed 0 step": "collected on others"})
    assert not found.passed and found.description == "seed 0 step: collected on others"
    assert checks.gate_ran({0: [], 1: []}).passed
    found = checks.gate_ran({0: [], 1: ["task was not tried", "step is missing"]})
    assert not found.passed
    assert found.description == "seed 1: task was not tried, step is missing"


def test_a_budget_may_hold_groups():
    summaries = {3: {"budget": {"collect_rows": 5, "seconds": {"collect": 0.1, "choose": 0.2}}}}
    assert skill_bank.budget_rows(summaries) == [
        {"seed": 3, "collect_rows": 5, "seconds_collect": 0.1, "seconds_choose": 0.2}
    ]


@pytest.mark.parametrize("draw", [plots.occupancy_plot, plots.utility_plot, plots.hit_rate_plot])
def test_pictures_of_empty_banks(draw):
    slot = {"bank": "step", "seed": 0, "state": "free", "utility": None, "uses": 0}
    assert draw([{**slot, "name": "hits", "value": 0.0}], "title").value.startswith("![plot]")
    assert draw([], "title").value.startswith("![plot]")
