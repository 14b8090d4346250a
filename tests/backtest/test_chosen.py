"""`chosen` follows the pick of each fold and seed, in every figure as in the view of the store."""

import numpy as np
import pytest

from backtest.errors import DataError
from backtest.evaluation.rows import chosen_rows
from backtest.lake import read_table
from backtest.manifest import FoldHeader
from backtest.queries import query
from backtest.record import stitched
from backtest.store import fold_result, write_fold_result
from backtest.walk_forward import publish_study
from tests.study import FOLDS, copied

NAME = "ONE"
PICKS = {FOLDS[0]: {0: "step", 1: "none"}, FOLDS[1]: {0: "none", 1: "none"}}
LABELS = ("equity", "trade", "metric", "reward_component")


def manifest_of(experiment, key):
    fold_id = experiment.fold_id(NAME, experiment.fold(NAME, key))
    owner = FoldHeader(experiment.study_id, NAME, key, fold_id, "evaluated")
    return owner, fold_result(experiment.lake, owner)


def with_step(experiment, key, picks):
    """Add a variant `step` to a fold: for each seed the rows of buy and hold, relabelled."""
    owner, manifest = manifest_of(experiment, key)
    tables = {name: read_table(manifest.path(name)).to_pylist() for name in manifest.files}
    for name in LABELS:
        held = [row for row in tables[name] if row["variant"] == "buy_and_hold"]
        for seed in (0, 1):
            label = {"variant": "step", "seed": seed}
            label |= {"policy_kind": "learned"} if name != "reward_component" else {}
            tables[name] += [row | label for row in held]
    alone = [row for row in tables["metric"] if row["variant"] != "chosen"]
    tables["metric"] = [*alone, *chosen_rows(alone, picks)]
    tables["skill_ablation"] = [
        row | {"variant": variant, "chosen": picks[row["seed"]] == variant}
        for row in tables["skill_ablation"]
        for variant in ("none", "step")
    ]
    write_fold_result(experiment.lake, owner, tables)


@pytest.fixture(scope="module")
def picked(study, tmp_path_factory):
    """The study of one instrument with two variants; seed 0 uses banks in the first fold alone."""
    root = tmp_path_factory.mktemp("picked")
    experiment = copied(study, root, f'study.instruments=["{NAME}"]')
    for key, picks in PICKS.items():
        with_step(experiment, key, picks)
    publish_study(experiment, "published")
    return experiment


def metric(experiment, name, scope="instrument"):
    """Values by (variant, seed)."""
    owner = {
        "instrument": f"{experiment.study_id}/{NAME}",
        "study": experiment.study_id,
        **{key: manifest_of(experiment, key)[0].fold_id for key in FOLDS[:2]},
    }[scope]
    sql = f"SELECT variant, seed, value FROM metric WHERE name = '{name}' AND scope_id = '{owner}'"
    rows = query(experiment.lake, sql).rows
    return {(row["variant"], row["seed"]): row["value"] for row in rows}


def lines(experiment):
    sql = f"SELECT variant, seed, equity FROM oos_equity WHERE instrument = '{NAME}' ORDER BY bar"
    found = {}
    for row in query(experiment.lake, sql).rows:
        found.setdefault((row["variant"], row["seed"]), []).append(row["equity"])
    return {key: np.array(equity) for key, equity in found.items()}


@pytest.mark.parametrize("scope", ["instrument", "study"])
def test_returns_of_every_variant_are_those_of_the_view(picked, scope):
    capital = picked.config.market.initial_capital
    found, stitched_lines = metric(picked, "net_return", scope), lines(picked)
    assert {("none", 0), ("step", 0), ("chosen", 0), ("chosen", 1)} <= set(stitched_lines)
    for key, equity in stitched_lines.items():
        assert found[key] == pytest.approx(equity[-1] / capital - 1, abs=1e-12), key
    # the step rows are those of buy and hold
    assert found["step", 0] == found["step", 1] == found["buy_and_hold", -1]


def test_a_record_is_made_of_each_folds_pick(picked):
    folds = [metric(picked, "net_return", key) for key in FOLDS[:2]]
    whole = metric(picked, "net_return")
    grown = (1 + folds[0]["step", 0]) * (1 + folds[1]["none", 0]) - 1
    assert whole["chosen", 0] == pytest.approx(grown, abs=1e-12)
    assert whole["chosen", 0] not in (whole["none", 0], whole["step", 0])
    assert folds[0]["chosen", 0] == folds[0]["step", 0]
    trades = metric(picked, "n_open")
    by_fold = [metric(picked, "n_open", key) for key in FOLDS[:2]]
    assert trades["chosen", 0] == by_fold[0]["step", 0] + by_fold[1]["none", 0]


def test_a_seed_that_never_changes_has_the_record_of_its_variant(picked):
    sql = (
        "SELECT name, value, low, high, n FROM metric WHERE seed = 1 AND scope = 'instrument' "
        "AND variant = '{}' ORDER BY name"
    )
    chosen, none = (query(picked.lake, sql.format(name)).rows for name in ("chosen", "none"))
    assert chosen == none != []


def test_over_seeds(picked):
    found = metric(picked, "net_return")
    for variant in ("none", "step", "chosen"):
        assert found[variant, -2] == pytest.approx((found[variant, 0] + found[variant, 1]) / 2)


def test_improvement_compares_what_was_chosen_in_each_fold(picked):
    sharpe = [metric(picked, "sharpe", key) for key in FOLDS[:2]]
    for variant in ("none", "step", "chosen"):
        found = metric(picked, "p_improvement_over_buy_and_hold")[variant, -2]
        wins = []
        for fold in sharpe:
            rival = fold["buy_and_hold", -1] or 0.0
            mine = [fold[variant, seed] or 0.0 for seed in (0, 1)]
            wins.append(np.mean([(x > rival) + 0.5 * (x == rival) for x in mine]))
        assert found == pytest.approx(np.mean(wins)), variant
    assert metric(picked, "p_improvement_over_buy_and_hold")["step", -2] == 0.5


def test_variants_stand_on_the_leaderboard(picked):
    sql = f"SELECT variant FROM leaderboard WHERE study_id = '{picked.study_id}'"
    found = {row["variant"] for row in query(picked.lake, sql).rows}
    assert {"none", "step", "chosen", "buy_and_hold"} <= found


def test_pictures_show_the_policy_and_where_it_differs_the_one_without_skills(picked):
    shown = stitched(picked.lake, picked.study_id, NAME)
    labels = [line.label for line in shown]
    assert labels[:2] == ["policy seed 0", "policy seed 1"]
    assert "policy seed 0 without skills" in labels and "step" not in labels
    assert "policy seed 1 without skills" not in labels
    assert [line.learned for line in shown].count(True) == 2
    view = lines(picked)
    assert shown[0].equity.tolist() == view["chosen", 0].tolist()


def test_a_fold_without_a_choice_is_refused(picked, study, tmp_path):
    broken = copied(study, tmp_path, f'study.instruments=["{NAME}"]')
    owner, manifest = manifest_of(broken, FOLDS[0])
    tables = {name: read_table(manifest.path(name)).to_pylist() for name in manifest.files}
    for row in tables["skill_ablation"]:
        row["chosen"] = False
    write_fold_result(broken.lake, owner, tables)
    with pytest.raises(DataError, match="seed 0: validation chose nothing"):
        publish_study(broken, "again")
