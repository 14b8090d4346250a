"""The views on hand-worked rows: stitching, the chosen variant, ruin, superseded folds."""

import pytest

from backtest.lake import Lake
from backtest.manifest import PartHeader
from backtest.publication import publish
from backtest.queries import query
from backtest.store import write_fold_result, write_part
from tests.backtest.fold_rows import (
    equity_rows,
    fold_row,
    header,
    joined,
    metric_row,
    write_fold,
)

STUDY = "a" * 16


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path)


def stitched(lake, variant="none", seed=0):
    publish(lake)
    sql = f"SELECT bar, equity, pnl_cum FROM oos_equity WHERE variant = '{variant}'"
    rows = query(lake, f"{sql} AND seed = {seed}").rows
    assert query(lake, f"{sql} AND seed = {seed}", live=True).rows == rows
    return rows


def test_fold_returns_compound_and_pnl_adds(lake):
    # +10 %, -5 %, +20 % of 1000 in two bars each: 1.1 * 0.95 * 1.2 = 1.254
    for fold, pnl in enumerate([[40.0, 60.0], [-20.0, -30.0], [150.0, 50.0]]):
        write_fold(lake, pnl, fold)
    rows = stitched(lake)
    assert [r["bar"] for r in rows] == [30, 31, 32, 33, 34, 35]
    expected = [1040, 1100, 1100 * 0.98, 1045, 1045 * 1.15, 1254]
    assert [r["equity"] for r in rows] == pytest.approx(expected, abs=1e-9)
    assert [r["pnl_cum"] for r in rows] == [40, 100, 80, 50, 200, 250]


def test_ruin_is_for_ever(lake):
    for fold, pnl in enumerate([[100.0, 0.0], [-1200.0, 0.0], [500.0, 0.0]]):
        write_fold(lake, pnl, fold)
    rows = stitched(lake)
    assert [r["equity"] for r in rows] == pytest.approx([1100, 1100, 0, 0, 0, 0])
    assert [r["pnl_cum"] for r in rows] == [100, 100, -1100, -1100, -600, -600]


def test_a_ruined_fold_shows_its_bars_before_ruin(lake):
    write_fold(lake, [-500.0, -600.0])
    write_fold(lake, [10.0, 0.0], fold=1)
    assert [r["equity"] for r in stitched(lake)] == pytest.approx([500, 0, 0, 0])


def test_only_complete_and_current_folds_are_stitched(lake):
    write_fold(lake, [10.0, 10.0])
    write_fold(lake, [999.0, 0.0], fold=1, fold_id="old")
    write_fold(lake, [50.0, 0.0], fold=1, fold_id="new")
    write_fold(lake, [70.0, 0.0], fold=2, status="partial")
    rows = stitched(lake)
    assert [r["bar"] for r in rows] == [30, 31, 32, 33]
    assert rows[-1]["equity"] == pytest.approx(1020 * 1.05)


def test_studies_instruments_seeds_and_baselines_stay_apart(lake):
    for study, instrument, pnl in (("s1", "ES", 1.0), ("s1", "NQ", 2.0), ("s2", "ES", 3.0)):
        equity = joined(
            equity_rows([pnl]),
            equity_rows([pnl * 10], seed=1),
            equity_rows([pnl * 100], seed=-1, variant="flat"),
        )
        rows = {"fold": [fold_row(bars=1)], "equity": equity}
        write_fold_result(lake, header(0, study, instrument, f"{study}{instrument}"), rows)
    publish(lake)
    found = query(
        lake,
        "SELECT study_id, instrument, seed, round(equity - 1000, 9) AS won FROM oos_equity "
        "WHERE variant <> 'chosen'",
    ).rows
    assert [" ".join(map(str, r.values())) for r in found] == [
        "s1 ES -1 100.0",
        "s1 ES 0 1.0",
        "s1 ES 1 10.0",
        "s1 NQ -1 200.0",
        "s1 NQ 0 2.0",
        "s1 NQ 1 20.0",
        "s2 ES -1 300.0",
        "s2 ES 0 3.0",
        "s2 ES 1 30.0",
    ]


def ablation(variant, chosen, seed=0, **changes):
    row = {"seed": seed, "variant": variant, "adopted": chosen, "chosen": chosen}
    row |= dict.fromkeys(
        ("alpha", "decisions_changed", "validation_delta", "delta_sharpe", "delta_pnl")
    )
    return row | {"low": None, "high": None, "verdict": None} | changes


def test_chosen_follows_validation_fold_by_fold_and_seed_by_seed(lake):
    picks = [["step", "none"], ["none", "step"]]  # by fold, by seed
    for fold, pick in enumerate(picks):
        parts = [
            equity_rows([10.0 * (1 + fold) + 100 * seed + (variant == "step")], fold, seed, variant)
            for seed in (0, 1)
            for variant in ("none", "step")
        ]
        parts.append(equity_rows([7.0], fold, 0, "random"))
        rows = [
            ablation(variant, variant == pick[seed], seed)
            for seed in (0, 1)
            for variant in ("none", "step")
        ]
        tables = {"fold": [fold_row(fold, 1)], "equity": joined(*parts), "skill_ablation": rows}
        write_fold_result(lake, header(fold), tables)
    assert [r["pnl_cum"] for r in stitched(lake, "chosen", 0)] == [11.0, 31.0]
    assert [r["pnl_cum"] for r in stitched(lake, "chosen", 1)] == [110.0, 231.0]


def test_without_banks_chosen_is_none(lake):
    write_fold(lake, [10.0, 20.0])
    assert stitched(lake, "chosen") == stitched(lake, "none") != []


def test_summary_and_leaderboard_read_figures_over_all_seeds(lake):
    write_fold(lake, [1.0], study=STUDY)
    rows = [
        metric_row("sharpe", 0.7, low=0.1, high=1.2, n=250),
        metric_row("sharpe", 9.9, seed=0),
        metric_row("sharpe", None, seed=-1, variant="flat", kind="baseline"),
        metric_row("deflated_sharpe", 0.6),
        metric_row("deflated_sharpe", 0.9, variant="task"),
        metric_row("sharpe", 0.2, variant="task"),
        metric_row("sharpe", 0.8, variant="step"),
    ]
    write_part(lake, PartHeader("summary", "r", STUDY, "SP500"), {"metric": rows})
    write_part(lake, PartHeader("summary", "r", STUDY), {"metric": rows})
    write_part(lake, PartHeader("summary", "r", "study without folds"), {"metric": rows})
    publish(lake)
    summary = query(lake, "FROM walk_forward_summary WHERE name = 'sharpe'").rows
    assert [(r["study_id"], r["instrument"], r["variant"], r["value"]) for r in summary] == [
        (STUDY, "SP500", "flat", None),
        (STUDY, "SP500", "none", 0.7),
        (STUDY, "SP500", "step", 0.8),
        (STUDY, "SP500", "task", 0.2),
    ]
    assert (summary[1]["low"], summary[1]["high"], summary[1]["n"]) == (0.1, 1.2, 250)
    board = query(lake, "FROM leaderboard").rows
    assert [(r["rank"], r["variant"], r["sharpe"]) for r in board] == [
        (1, "task", 0.2),
        (2, "none", 0.7),
        (3, "step", 0.8),
        (4, "flat", None),
    ]


def test_an_instrument_may_have_a_slash(lake):
    write_fold(lake, [1.0], study="s", instrument="BTC/USD")
    write_part(lake, PartHeader("summary", "r", "s", "BTC/USD"), {"metric": [metric_row()]})
    publish(lake)
    (row,) = query(lake, "SELECT study_id, instrument FROM walk_forward_summary").rows
    assert row == {"study_id": "s", "instrument": "BTC/USD"}


def policy_row(seed, train):
    row = {"seed": seed, "variant": "none", "network": "mlp", "path": "p", "weight_hash": "w"}
    row |= {"steps": 1, "updates": 1, "best_epoch": 0, "validation_sharpe": 1.5}
    return row | {"train_sharpe": train, "v_min": -1, "v_max": 1, "edge_mass": 0, "device": "cpu"}


def test_decay_is_undefined_for_a_losing_train_window(lake):
    tables = {
        "fold": [fold_row(bars=1)],
        "policy": [policy_row(0, 2.0), policy_row(1, -2.0), policy_row(2, 1.0)],
        "metric": [metric_row(value=0.5, seed=0), metric_row(value=0.5, seed=1)],
    }
    write_fold_result(lake, header(), tables)
    publish(lake)
    rows = query(lake, "SELECT seed, train_sharpe, oos_sharpe, decay FROM is_vs_oos").rows
    assert [tuple(r.values()) for r in rows] == [
        (0, 2.0, 0.5, 0.75),
        (1, -2.0, 0.5, None),
        (2, 1.0, None, None),
    ]


def test_skills_carry_the_verdict_of_their_bank(lake):
    slot = {"seed": 0, "bank": "task", "utility": 0.3, "uses": 5, "observations": 9, "age": 1}
    slot |= {"mass": 0.5, "scale": 1.0, "hits": 2, "influence": 0.1}
    skills = [slot | {"slot": 0, "state": "active"}, slot | {"slot": 1, "state": "free"}]
    tables = {
        "fold": [fold_row(bars=1)],
        "skill": skills,
        "skill_ablation": [
            ablation("task", True, delta_sharpe=0.4, verdict="adopted"),
            ablation("step", False),
        ],
    }
    write_fold_result(lake, header(fold_id="old"), tables)
    write_fold_result(lake, header(fold_id="new"), tables)
    publish(lake)
    (row,) = query(lake, "FROM skill_verdict").rows
    assert list(row.values()) == ["new", "task", 0, 5, 0.3, 0.4, "adopted", 0]
