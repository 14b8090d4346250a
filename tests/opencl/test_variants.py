"""Every variant of a policy through the test window: rows, choice, hits, and what is refused."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from backtest.agent.bank import Bank
from backtest.errors import DataError, StoreError
from backtest.evaluation.ablation import decisions_changed
from backtest.experiment import Experiment
from backtest.lake import Lake, read_json, read_table, write_json
from backtest.manifest import FoldHeader
from backtest.queries import query
from backtest.store import fold_result
from backtest.summary import summarize
from opencl.fold_result import evaluate_fold
from opencl.out_of_sample import OutOfSample
from opencl.plays import Entry, play
from opencl.variants import load_variants, seed_summaries
from tests.skills import ALPHAS, KEY, NAME, PICKS, SLOTS, TAKEN

VARIANTS = ("none", "task", "step", "both", "finetune")


@pytest.fixture(scope="module")
def tables(skilled):
    fold_id = skilled.fold_id(NAME, skilled.fold(NAME, KEY))
    manifest = fold_result(skilled.lake, FoldHeader(skilled.study_id, NAME, KEY, fold_id, ""))
    return {name: read_table(manifest.path(name)).to_pylist() for name in manifest.files}


@pytest.fixture
def writable(skilled, tmp_path):
    shutil.copytree(skilled.lake.root, tmp_path, dirs_exist_ok=True)
    return Experiment(skilled.config, Lake(tmp_path))


def grouped(rows, *names):
    found = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found


def summary_path(experiment, seed=0):
    fold_id = experiment.fold_id(NAME, experiment.fold(NAME, KEY))
    return experiment.lake.skills(experiment.study_id, NAME, KEY, fold_id) / f"seed_{seed}.json"


class TestRows:
    def test_every_variant_has_every_bar(self, skilled, tables):
        test = skilled.fold(NAME, KEY).test
        found = grouped(
            (r for r in tables["equity"] if r["policy_kind"] == "learned"), "variant", "seed"
        )
        assert set(found) == {(variant, seed) for variant in VARIANTS for seed in PICKS}
        for rows in found.values():
            assert [row["bar"] for row in rows] == list(range(test.start, test.stop))
        shares = grouped(tables["reward_component"], "variant", "seed")
        assert set(found) <= set(shares)

    def test_the_ablation_is_what_the_rows_say(self, tables):
        equity = grouped(tables["equity"], "variant", "seed")
        sharpe = {
            (row["variant"], row["seed"]): row["value"]
            for row in tables["metric"]
            if row["name"] == "sharpe"
        }
        rows = grouped(tables["skill_ablation"], "variant", "seed")
        assert set(rows) == {(variant, seed) for variant in VARIANTS for seed in PICKS}
        for (variant, seed), (row,) in rows.items():
            gained = equity[variant, seed][-1]["equity"] - equity["none", seed][-1]["equity"]
            assert row["delta_pnl"] == pytest.approx(gained, abs=1e-6)
            assert row["chosen"] == (PICKS[seed] == variant)
            pair = sharpe[variant, seed], sharpe["none", seed]
            if None not in pair:
                assert row["delta_sharpe"] == pytest.approx(pair[0] - pair[1])
            if row["low"] is not None:
                assert row["low"] <= row["delta_pnl"] <= row["high"]
        assert {row["verdict"] for row, in rows.values()} <= {
            "reference", "adopted", "not adopted", "comparison", "inert",
        }  # fmt: skip
        assert rows["none", 0][0]["verdict"] == "reference"
        assert rows["step", 0][0]["verdict"] == "adopted"
        assert rows["step", 0][0]["alpha"] == ALPHAS["step"]
        assert rows["both", 0][0]["alpha"] is None  # two strengths
        assert rows["step", 0][0]["decisions_changed"] > 0

    def test_chosen_is_each_seeds_pick(self, tables):
        found = {
            (row["variant"], row["seed"], row["name"]): row["value"] for row in tables["metric"]
        }
        for seed, pick in PICKS.items():
            for name in ("net_return", "n_trades", "turnover"):
                assert found["chosen", seed, name] == found[pick, seed, name]
        both = [found["chosen", seed, "net_return"] for seed in PICKS]
        assert found["chosen", -2, "net_return"] == pytest.approx(np.mean(both))

    def test_a_policy_row_a_variant(self, tables):
        rows = {(row["variant"], row["seed"]): row for row in tables["policy"]}
        assert set(rows) == {(variant, seed) for variant in VARIANTS for seed in PICKS}
        base, step, tuned = (rows[name, 0] for name in ("none", "step", "finetune"))
        assert step["weight_hash"] == base["weight_hash"] != tuned["weight_hash"]
        assert step["path"] == base["path"] and tuned["path"].endswith("finetune.safetensors")
        assert tuned["updates"] == base["updates"] + 7
        assert step["validation_sharpe"] == tuned["validation_sharpe"] == 0.25
        assert step["train_sharpe"] is None

    def test_every_trial_of_the_ablation_is_in_the_ledger(self, tables):
        kinds = grouped(tables["trial"], "kind")
        assert len(kinds["train",]) == 2 and len(kinds["ablation",]) == 2 * 4
        returns = grouped(tables["trial_return"], "trial_id")
        assert set(returns) == {(row["trial_id"],) for row in tables["trial"]}

    def test_skills_count_their_hits_in_the_test_window(self, skilled, tables):
        rows = grouped(tables["skill"], "bank", "seed")
        assert set(rows) == {(bank, seed) for bank in ("task", "step") for seed in PICKS}
        stats = {(r["bank"], r["seed"], r["name"]): r["value"] for r in tables["bank_stat"]}
        bars = len(skilled.fold(NAME, KEY).test)
        for (bank, seed), slots in rows.items():
            assert [row["slot"] for row in slots] == list(range(SLOTS))
            assert [row["state"] for row in slots].count("protected") == TAKEN
            hits = sum(row["hits"] for row in slots)
            assert hits == stats[bank, seed, "test_hits"] > 0
            assert all(row["hits"] == 0 for row in slots if row["state"] == "free")
            searches = (stats[bank, seed, f"test_{n}"] for n in ("hits", "misses", "abstentions"))
            assert sum(searches) == bars


class TestPlay:
    def test_the_reference_is_the_policy_alone(self, skilled):
        """Playing variants beside it changes no bit of it, and banks are not written to."""
        fold = skilled.fold(NAME, KEY)
        (summary, _) = seed_summaries(skilled, NAME, KEY, skilled.fold_id(NAME, fold))
        variants = load_variants(skilled, summary)
        assert [variant.name for variant in variants] == list(VARIANTS)
        assert [variant.skills is None for variant in variants] == [True, False, False, False, True]
        window = OutOfSample.open(skilled, NAME, fold, variants[0].policy)
        before = {path: path.read_bytes() for path in summary_path(skilled).parent.iterdir()}
        ((runs,), (alone,)) = (play([Entry(window, own)]) for own in (variants, variants[:1]))
        assert runs[0].episode.trace.tobytes() == alone[0].episode.trace.tobytes()
        assert runs[0].slots is None
        assert before == {path: path.read_bytes() for path in before}
        step, none = runs[2].outcome, runs[0].outcome
        changed = decisions_changed(step.action, step.end, none.action, none.end)
        hit = runs[2].slots[:, 1] >= 0
        first = int(np.flatnonzero(np.any(step.action != none.action, axis=1))[0])
        assert changed > 0 and hit[first]
        # `step` does not search the task bank
        assert not (runs[2].slots[:, 0] >= 0).any()

    def test_online_banks_follow_the_window_and_stay_as_they_are(self, skilled):
        fold = skilled.fold(NAME, KEY)
        (summary, _) = seed_summaries(skilled, NAME, KEY, skilled.fold_id(NAME, fold))
        variants = [load_variants(skilled, summary)[place] for place in (0, 2)]
        frozen = OutOfSample.open(skilled, NAME, fold, variants[0].policy)
        skills = skilled.config.skills.model_copy(update={"online": True})
        online = replace(frozen, config=skilled.config.model_copy(update={"skills": skills}))
        held = variants[1].banks["step"].content_hash()
        ((none, step),), ((base, still),) = (
            play([Entry(window, variants)]) for window in (online, frozen)
        )
        assert none.action.tobytes() == base.action.tobytes()  # no bank, nothing to calibrate
        assert step.action[0].tolist() == still.action[0].tolist()  # act first, learn later
        assert step.slots.shape == still.slots.shape
        assert (step.slots[:, 1] >= 0).any() and not (step.slots[:, 0] >= 0).any()
        assert variants[1].banks["step"].content_hash() == held


class TestRefused:
    def test_banks_that_were_not_formed(self, writable):
        summary_path(writable, 1).unlink()
        with pytest.raises(DataError, match="no skill bank of seed 1; materialise asset skill_ba"):
            evaluate_fold(writable, NAME, KEY, "again")

    def test_a_summary_of_other_weights(self, writable):
        path = summary_path(writable)
        write_json(path, read_json(path) | {"weight_hash": "0" * 64})
        with pytest.raises(StoreError, match="seed 0 were formed on the weights 000000000000"):
            evaluate_fold(writable, NAME, KEY, "again")

    def test_a_bank_of_other_weights(self, writable):
        path = summary_path(writable)
        bank = path.with_name("seed_0_step.safetensors")
        Bank.load(bank, read_json(path)["weight_hash"]).save(bank, "0" * 64)
        with pytest.raises(StoreError, match=r"seed_0_step.*collected on weights 000000000000"):
            evaluate_fold(writable, NAME, KEY, "again")

    def test_a_choice_that_is_none(self, writable):
        path = summary_path(writable)
        summary = read_json(path)
        for entry in summary["variants"]:
            entry["chosen"] = False
        write_json(path, summary)
        with pytest.raises(DataError, match="seed 0: validation chose nothing"):
            evaluate_fold(writable, NAME, KEY, "again")


def test_the_store_answers_which_skills_paid(skilled, tables):
    rows = query(skilled.lake, "FROM skill_verdict").rows
    assert len(rows) == 2 * 2 * TAKEN  # banks, seeds, skills
    verdicts = {(r["seed"], r["variant"]): r["verdict"] for r in tables["skill_ablation"]}
    for row in rows:
        assert row["verdict"] == verdicts[row["seed"], row["bank"]]
    shown = query(skilled.lake, "SELECT DISTINCT variant FROM is_vs_oos ORDER BY 1").rows
    assert [row["variant"] for row in shown] == sorted(VARIANTS)
    summary = query(skilled.lake, "SELECT variant FROM walk_forward_summary").rows
    assert {*VARIANTS, "chosen"} <= {row["variant"] for row in summary}


def test_people_see_what_the_banks_did(skilled):
    (shown,) = summarize(skilled.lake)
    assert [line.variant for line in shown.ablation.lines] == [*VARIANTS, "chosen"]
    assert shown.ablation.lines[-1].adopted == 1  # seed 0 uses its step bank
