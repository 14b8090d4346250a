"""One fold's result: every table as the schema wants it, and only from what the fold may see."""

import numpy as np
import pytest

from backtest.errors import DataError, StoreError
from backtest.evaluation.baselines import DETERMINISTIC
from backtest.evaluation.metrics import METRICS
from backtest.lake import read_table
from backtest.manifest import FoldHeader
from backtest.market.layout import BRANCHES, COMPONENTS
from backtest.store import fold_result
from opencl.fold_result import evaluate_fold
from tests.study import FOLDS, PARTIAL, copied

NAME, KEY = "ONE", FOLDS[0]
BOTH = 'study.instruments=["ONE","TWO"]'
TABLES = {
    "fold", "policy", "curve", "trial", "trial_return", "feature_stat", "equity", "trade",
    "metric", "reward_component", "skill_ablation", "aux_verdict", "forecast_quality",
}  # fmt: skip


def result(study, key=KEY):
    fold_id = study.fold_id(NAME, study.fold(NAME, key))
    found = fold_result(study.lake, FoldHeader(study.study_id, NAME, key, fold_id, ""))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def tables(study):
    manifest = result(study)
    return {name: read_table(manifest.path(name)).to_pylist() for name in manifest.files}


def grouped(rows, *names):
    found = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found


class TestTables:
    def test_all_there(self, study, tables):
        assert set(tables) == TABLES
        (fold,) = tables["fold"]
        assert (fold["fold_key"], fold["status"], fold["n_bars"]) == (KEY, "complete", 168)

    def test_every_bar_of_the_window_has_one_equity_row(self, study, tables):
        test = study.fold(NAME, KEY).test
        found = grouped(tables["equity"], "policy_kind", "variant", "seed")
        assert set(found) == {
            ("learned", "none", 0), ("learned", "none", 1), ("baseline", "random", 0),
            *(("baseline", name, -1) for name in DETERMINISTIC),
        }  # fmt: skip
        bars = study.bars(NAME)
        for rows in found.values():
            assert [row["bar"] for row in rows] == list(range(test.start, test.stop))
            assert [row["close"] for row in rows] == bars.close[test.start : test.stop].tolist()
            assert rows[-1]["equity"] == pytest.approx(1e5 + sum(row["pnl"] for row in rows))

    def test_baselines_do_what_they_say(self, study, tables):
        found = grouped(tables["equity"], "variant")
        assert {row["equity"] for row in found["flat",]} == {1e5}
        held = found["buy_and_hold",]
        assert {row["position"] for row in held} == {10.0}
        fold, bars = study.fold(NAME, KEY), study.bars(NAME)
        # bought at the open of the first bar, point value 5
        entry = bars.open[fold.test.start]
        assert held[-1]["equity"] + held[0]["cost"] - 1e5 == pytest.approx(
            10 * 5 * (bars.close[fold.test.stop - 1] - entry)
        )
        assert held[0]["cost"] == pytest.approx(10 * (0.1 + 5 * (0.07 + 1e-5 * entry)))
        for row, other in zip(held, found["inverse",], strict=True):
            assert other["position"] == -row["position"]
            assert other["gross"] == pytest.approx(-row["gross"])

    def test_trades_and_equity_tell_the_same(self, tables):
        names = ("policy_kind", "variant", "seed")
        equity, trades = (grouped(tables[name], *names) for name in ("equity", "trade"))
        for key, rows in equity.items():
            earned = sum(row["pnl"] for row in trades.get(key, []))
            assert earned == pytest.approx(rows[-1]["equity"] - 1e5, abs=1e-6)
        times = {row["bar"]: row["time"] for row in tables["equity"]}
        for row in tables["trade"]:
            assert row["entry_time"] == times[row["entry_bar"]]
            assert row["exit_time"] == times[row["exit_bar"]]

    def test_metrics(self, study, tables):
        found = grouped(tables["metric"], "variant", "seed")
        draws = study.config.evaluation.random_draws
        assert set(found) == {
            *(("none", seed) for seed in (0, 1, -2)),
            *(("chosen", seed) for seed in (0, 1, -2)),
            *(("random", seed) for seed in (*range(draws), -2)),
            *((name, -1) for name in DETERMINISTIC),
        }
        for rows in found.values():
            assert {row["name"] for row in rows} == {*METRICS, "liquidation_cost"}
        values = {key: {row["name"]: row for row in rows} for key, rows in found.items()}
        for name in METRICS:
            seeds = [values["none", seed][name]["value"] for seed in (0, 1)]
            known = [value for value in seeds if value is not None]
            over = values["none", -2][name]
            assert over["n"] == len(known)
            assert over["value"] == (pytest.approx(np.mean(known)) if known else None)
            for seed in (0, 1, -2):
                chosen = values["chosen", seed][name] | {"variant": "none"}
                assert chosen == values["none", seed][name]
        sharpe = values["buy_and_hold", -1]["sharpe"]
        assert sharpe["low"] < sharpe["value"] < sharpe["high"]
        assert values["flat", -1]["sharpe"]["value"] is None
        # what an open position would cost to close, beside the equity
        cost = values["buy_and_hold", -1]["liquidation_cost"]["value"]
        last = study.bars(NAME).close[study.fold(NAME, KEY).test.stop - 1]
        assert cost == pytest.approx(10 * (0.1 + 5 * (0.07 + 1e-5 * last)))

    def test_random_draws_trade_about_as_much_as_the_policy(self, tables):
        found = grouped(tables["metric"], "variant", "name")
        turnover = {
            variant: [row["value"] for row in found[variant, "turnover"] if row["seed"] >= 0]
            for variant in ("none", "random")
        }
        policy, draws = (np.array(turnover[name]) for name in ("none", "random"))
        assert draws.mean() == pytest.approx(policy.mean(), rel=0.35)  # four draws

    def test_shares_of_the_reward(self, tables):
        for rows in grouped(tables["reward_component"], "variant", "seed").values():
            assert {row["name"] for row in rows} == {*COMPONENTS, "reward"}
            shares = [row["share"] for row in rows if row["share"] is not None]
            assert sum(shares) == pytest.approx(1)

    def test_what_training_left(self, study, tables):
        assert [row["seed"] for row in tables["policy"]] == [0, 1]
        # trained by one execution, written by another
        assert {row["run_id"] for row in tables["policy"]} == {"evaluated"}
        assert {(row["seed"], row["epoch"]) for row in tables["curve"]} == {
            (seed, epoch) for seed in (0, 1) for epoch in (0, 1)
        }
        for row in tables["curve"]:
            for branch in BRANCHES:
                learned = branch in study.config.learner.branches
                assert (row[f"entropy_{branch}"] is not None) == learned
        assert {row["objective"] for row in tables["trial"]} == {
            row["validation_sharpe"] for row in tables["policy"]
        }
        fold = study.fold(NAME, KEY)
        sessions = study.bars(NAME).session[fold.validation.start : fold.validation.stop]
        for rows in grouped(tables["trial_return"], "trial_id").values():
            days = [np.datetime64(row["session"]).astype(int) for row in rows]
            assert days == np.unique(sessions).tolist()

    def test_without_banks_the_ablation_has_its_reference_alone(self, tables):
        for seed, row in enumerate(tables["skill_ablation"]):
            assert row == {
                "fold_id": row["fold_id"],
                **dict.fromkeys(("alpha", "validation_delta", "low", "high")),
                **{"seed": seed, "variant": "none", "adopted": False, "chosen": True},
                **{"decisions_changed": 0, "delta_pnl": 0.0, "verdict": "reference"},
                "delta_sharpe": row["delta_sharpe"],
            }
            assert row["delta_sharpe"] in (0.0, None)  # None: it never traded

    def test_a_partial_window_is_evaluated_as_far_as_it_goes(self, study):
        manifest = result(study, PARTIAL)
        assert manifest.status == "partial"
        assert manifest.files["equity"].rows == 7 * 72


class TestAgain:
    def test_the_same_rows(self, study, tables, tmp_path):
        again = copied(study, tmp_path)
        manifest = evaluate_fold(again, NAME, KEY, "evaluated").manifest
        for name, rows in tables.items():
            assert read_table(manifest.path(name)).to_pylist() == rows, name

    def test_figures_for_people(self, study, tmp_path):
        found = evaluate_fold(copied(study, tmp_path), NAME, KEY, "again")
        assert list(found.learned) == [(0, "none"), (1, "none")]
        assert found.picks == {0: "none", 1: "none"}
        assert found.chosen == {0: found.learned[0, "none"], 1: found.learned[1, "none"]}
        assert list(found.baselines) == list(DETERMINISTIC)
        assert found.baselines["flat"]["net_return"] == 0

    def test_a_seed_that_was_not_trained(self, study, tmp_path):
        more = copied(study, tmp_path, BOTH, "study.seeds=[0, 1, 2]")
        with pytest.raises(DataError, match=r"seed_2\.json: no policy of seed 2; materialise"):
            evaluate_fold(more, NAME, KEY, "again")

    def test_a_policy_file_that_is_gone(self, study, tmp_path):
        broken = copied(study, tmp_path)
        (path,) = tmp_path.glob(f"policies/*/{NAME}/{KEY}/*/seed_1.safetensors")
        path.unlink()
        with pytest.raises(StoreError, match=r"seed_1\.safetensors"):
            evaluate_fold(broken, NAME, KEY, "again")

    def test_a_skipped_fold(self, study):
        with pytest.raises(DataError, match="fold 2000-01-31 of ONE is skipped"):
            evaluate_fold(study, NAME, "2000-01-31", "again")

    def test_nothing_after_the_window_is_read(self, study, tables, tmp_path):
        # the files of every other window are gone
        alone = copied(study, tmp_path)
        for path in tmp_path.glob("features/*/*/*.parquet"):
            if path.stem != KEY:
                path.unlink()
        manifest = evaluate_fold(alone, NAME, KEY, "evaluated").manifest
        assert read_table(manifest.path("equity")).to_pylist() == tables["equity"]
