"""The skills of a fold and seed: what is left, when it is made again, what must not matter."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from safetensors import safe_open

from backtest.agent.bank import Bank
from backtest.agent.checkpoint import load_policy
from backtest.agent.result import StoppedError
from backtest.errors import StoreError
from backtest.evaluation.ablation import gate_faults
from backtest.evaluation.ratios import sharpe
from backtest.experiment import Experiment
from backtest.lake import Lake, read_json, write_json
from opencl import skills
from opencl.seed_training import train_seed
from opencl.skills import form_skills
from opencl.variants import load_variants, seed_summaries
from tests.opencl.formation.scene import FAST
from tests.skills import KEY, NAME, SCENARIO, SLOTS, spec_of
from tests.study import opened

SUMMARY = {
    "made_by", "weight_hash", "banks", "skill", "bank_stat", "variants", "trials", "budget",
}  # fmt: skip
BUDGET = {
    "collect_rows", "collect_episodes", "evaluate_rows", "gradient_rows", "finetune_updates",
    "collect_seconds", "evaluate_seconds", "finetune_seconds", "choose_seconds",
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A study with one trained seed and without the features of its test window."""
    root = tmp_path_factory.mktemp("skills")
    experiment = opened(root, *SCENARIO, *FAST, "study.seeds=[0]", "skills.random_banks=2")
    train_seed(spec_of(experiment, 0))
    experiment.lake.features(experiment.study_id, NAME, KEY).unlink()
    return experiment


@pytest.fixture(scope="module")
def lines():
    return []


@pytest.fixture(scope="module")
def formed(trained, lines):
    path = form_skills(spec_of(trained, 0), log=lambda text, share: lines.append((text, share)))
    return read_json(path)


@pytest.fixture
def fresh(trained, tmp_path):
    """The study on a copy of its lake, without skills."""
    shutil.copytree(trained.lake.root, tmp_path, dirs_exist_ok=True)
    shutil.rmtree(tmp_path / "skills", ignore_errors=True)
    return Experiment(trained.config, Lake(tmp_path))


def folder_of(experiment):
    spec = spec_of(experiment, 0)
    return experiment.lake.skills(experiment.study_id, NAME, KEY, spec.fold_id)


def contents(experiment):
    """The header of every file that a seed left, by name: a hash of its tensors, and the rest."""
    found = {}
    for path in folder_of(experiment).glob("*.safetensors"):
        with safe_open(path, "np") as file:
            found[path.name] = file.metadata()
            assert "content_hash" in found[path.name]
    return found


def test_the_summary(trained, formed):
    assert set(formed) == SUMMARY and set(formed["budget"]) == BUDGET
    names = [entry["variant"] for entry in formed["variants"]]
    assert names == ["none", "task", "step", "both", "finetune"]
    assert gate_faults(["task", "step"], True, formed["variants"]) == []
    policy = read_json(spec_of(trained, 0).folder / "seed_0.json")["policy"]
    assert formed["weight_hash"] == policy["weight_hash"]
    rows = [(row["bank"], row["slot"]) for row in formed["skill"]]
    assert rows == [(name, slot) for name in ("task", "step") for slot in range(SLOTS)]
    stats = {(row["bank"], row["name"]): row["value"] for row in formed["bank_stat"]}
    assert len(stats) == len(formed["bank_stat"])
    for name, path in formed["banks"].items():
        bank = Bank.load(trained.lake.root / path, policy["weight_hash"])
        state = bank.state
        for row in formed["skill"]:
            if row["bank"] == name:
                assert row["utility"] == state.utility[row["slot"]]
                assert row["uses"] == state.uses[row["slot"]]
        assert bank.counters["rows"] == stats[name, "rows"] == formed["budget"]["collect_rows"] - 4
        assert stats[name, "slots_free"] == (state.used == 0).sum()
        assert stats[name, "threshold"] == pytest.approx(float(state.threshold))
        assert stats[name, "cosine_q90"] == pytest.approx(float(state.threshold))
        assert 0 <= stats[name, "coverage"] <= 1
        assert {"random_delta", "random_delta_error", "delta", "live", "h_ref"} <= {
            stat for bank_name, stat in stats if bank_name == name
        }
    train = trained.fold(NAME, KEY).train
    assert formed["budget"]["collect_rows"] == len(train) - 1
    rows, batch = formed["budget"]["gradient_rows"], trained.config.learner.batch
    assert formed["budget"]["finetune_updates"] == -(-rows // batch)


def test_the_trials_of_the_ledger(trained, formed):
    tried = formed["trials"]
    # two strengths of each bank, both, training on
    assert len(tried) == len({trial["trial_id"] for trial in tried}) == 6
    fold = trained.fold(NAME, KEY)
    days = trained.bars(NAME).session[fold.validation.start : fold.validation.stop]
    for trial in tried:
        returns = np.array([row["pnl"] for row in trial["trial_return"]])
        assert [row["session"] for row in trial["trial_return"]] == np.unique(days).tolist()
        assert trial["objective"] == pytest.approx(sharpe(returns, 365))
        assert (trial["kind"], trial["seed"], trial["status"]) == ("ablation", 0, "complete")
    params = [(trial["params"]["variant"], trial["params"]["alpha"]) for trial in tried]
    for entry in formed["variants"][1:]:
        assert (entry["variant"], entry["alpha"]) in params


def test_every_variant_can_be_loaded(trained, formed):
    (summary,) = seed_summaries(trained, NAME, KEY, spec_of(trained, 0).fold_id)
    variants = load_variants(trained, summary)
    assert [v.skills is not None for v in variants] == [False, True, True, True, False]
    assert variants[-1].policy.update == 12 + formed["budget"]["finetune_updates"]


def test_people_see_the_stages(formed, lines):
    stages = [text.split()[2].rstrip(":") for text, _ in lines]
    assert stages == ["collect", "evaluate", "finetune", "choose"]
    assert [share for _, share in lines] == [0.25, 0.5, 0.75, 1.0]


def test_what_was_made_is_not_made_again(trained, formed, monkeypatch):
    path = folder_of(trained) / "seed_0.json"
    before = path.read_bytes(), contents(trained)
    with monkeypatch.context() as patch:
        patch.setattr(skills, "collect", None)
        assert form_skills(spec_of(trained, 0)) == path
    assert (path.read_bytes(), contents(trained)) == before
    # a summary without one of its files says nothing
    (folder_of(trained) / "step_0.safetensors").unlink()
    form_skills(spec_of(trained, 0))
    assert contents(trained) == before[1]


@pytest.mark.parametrize("answers", [0, 2, 4, 7])
def test_a_stopped_run_leaves_nothing(fresh, answers):
    """Before it begins; while it collects, evaluates and trains on."""
    asked = 0

    def stop():
        nonlocal asked
        asked += 1
        return asked > answers

    with pytest.raises(StoppedError, match="seed 0: stopped while"):
        form_skills(spec_of(fresh, 0), stop)
    assert not list(folder_of(fresh).iterdir())


def test_validation_and_test_bars_leave_the_banks_bit_identical(
    fresh, trained, formed, monkeypatch
):
    """The test window's features are gone in every test here; validation is another market."""
    windows = skills.fold_windows

    def other(spec, device):
        foundation, found = windows(spec, device)
        tape, state = found["validation"]
        bars = tape.bars.copy()
        for name in ("open", "high", "low", "close"):
            bars[name] += 50 * np.sin(np.arange(len(bars)))
        found["validation"] = replace(tape, bars=bars), -state
        return foundation, found

    monkeypatch.setattr(skills, "fold_windows", other)
    changed = read_json(form_skills(spec_of(fresh, 0)))
    assert contents(fresh) == contents(trained)
    assert changed["skill"] == formed["skill"]
    assert changed["trials"][0]["trial_return"] != formed["trials"][0]["trial_return"]


def test_a_policy_that_its_summary_does_not_describe_is_refused(fresh):
    path = spec_of(fresh, 0).folder / "seed_0.json"
    summary = read_json(path)
    hashed = load_policy(fresh.lake.root / summary["policy"]["path"]).weights.weight_hash
    summary["policy"]["weight_hash"] = "0" * 64
    write_json(path, summary)
    with pytest.raises(StoreError, match=f"weights {hashed[:12]}, its summary describes 00000"):
        form_skills(spec_of(fresh, 0))
    assert not folder_of(fresh).exists()


def test_a_policy_that_was_not_trained(fresh):
    with pytest.raises(StoreError, match=r"seed_3.json: no such file"):
        form_skills(spec_of(fresh, 3))
