"""The table of the ablation on hand-worked rows of the store."""

import json

import pytest

from backtest.ablation_table import ABLATION_COLUMNS, ablation_of
from backtest.lake import Lake
from backtest.manifest import PartHeader
from backtest.publication import publish
from backtest.report import html
from backtest.store import write_fold_result, write_part
from backtest.summary import summarize
from tests.backtest.fold_rows import equity_rows, fold_row, header, joined, metric_row

STUDY = "a" * 16


def run(fold, seed, variant, pnl=0.0, changed=0, **changes):
    """One row of skill_ablation with the bars of its fold: 100."""
    row = {"fold_id": f"f{fold}", "seed": seed, "variant": variant, "alpha": None}
    row |= {"adopted": False, "chosen": variant == "none", "decisions_changed": changed}
    row |= {"delta_sharpe": pnl / 100, "delta_pnl": pnl, "n_bars": 100}
    return row | changes


def runs(variant, *pnl, **changes):
    """Two folds x two seeds of a variant; PnL gained fold by fold, seed by seed."""
    places = [(0, 0), (0, 1), (1, 0), (1, 1)]
    return [run(*place, variant, gain, **changes) for place, gain in zip(places, pnl, strict=True)]


def cells(rows, variant, confidence=0.9):
    lines = ablation_of(rows, confidence).table
    return dict(zip(ABLATION_COLUMNS, next(row for row in lines if row[0] == variant), strict=True))


NONE = runs("none", 0, 0, 0, 0)


def test_a_gain_is_the_mean_over_folds_with_its_interval_over_folds():
    rows = [*NONE, *runs("step", 80, 120, 100, 120, changed=5, alpha=0.3, adopted=True)]
    # folds: 100 and 110; mean 105, error 10 / sqrt(2) / sqrt(2) = 5, t(0.95, 1) = 6.3138
    assert cells(rows, "step") == {
        "variant": "step",
        "alpha": "0.3",
        "adopted": "4 of 4",
        "decisions changed": "5.0%",
        "Sharpe gained": "+1.05 [+0.73, +1.37]",
        "PnL gained a fold": "+105 [+73, +137]",
        "verdict": "gained",
    }
    loss = runs("step", -80, -120, -100, -120, changed=5, adopted=True)
    assert cells([*NONE, *loss], "step")["verdict"] == "lost"


def test_seeds_of_one_fold_are_no_independent_evidence():
    one = [run(0, seed, v, 100.0 * (v == "step"), 3) for seed in range(9) for v in ("none", "step")]
    found = cells(one, "step")
    assert (found["PnL gained a fold"], found["verdict"]) == (
        "+100",
        "not adopted: no difference shown",
    )


def test_nothing_changed_is_inert_and_never_neutral():
    rows = [*NONE, *runs("step", 0, 0, 0, 0, adopted=True), *runs("finetune", 0, 0, 0, 0)]
    assert cells(rows, "step")["verdict"] == "inert"
    assert cells(rows, "finetune")["verdict"] == "inert"
    assert cells(rows, "chosen")["verdict"] == "the policy without skills"


def test_what_was_not_adopted_and_what_only_compares_say_so():
    rows = [*NONE, *runs("task", 100, 100, 101, 101, changed=1)]
    rows += runs("finetune", -100, -100, -101, -101, changed=50)
    assert cells(rows, "task")["verdict"] == "not adopted: would have gained"
    found = cells(rows, "finetune")
    assert (found["adopted"], found["verdict"]) == ("", "comparison: lost")
    assert cells(rows, "none") == {
        **dict.fromkeys(ABLATION_COLUMNS, ""),
        "variant": "none",
        "verdict": "reference",
    }


def test_chosen_is_each_runs_own_pick():
    rows = [row | {"chosen": place > 1} for place, row in enumerate(NONE)]
    step = runs("step", 60, 80, 500, 500, changed=10, adopted=True)
    alphas = (0.3, 1.0, 3.0, 3.0)
    rows += [
        row | {"chosen": place < 2, "alpha": alpha}
        for place, (row, alpha) in enumerate(zip(step, alphas, strict=True))
    ]
    found = cells(rows, "chosen")
    assert found["adopted"] == "2 of 4"
    assert found["alpha"] == "0.3, 1"
    assert found["decisions changed"] == "5.0%"  # 20 of 400
    assert found["PnL gained a fold"].startswith("+35 ")  # folds: 70 and 0


def test_a_study_without_banks_has_no_ablation():
    assert ablation_of(NONE, 0.95) is None
    assert ablation_of([], 0.95) is None


def test_undefined_figures_stay_empty():
    rows = [*NONE, *runs("step", 1, 2, 3, 4, changed=1, delta_sharpe=None)]
    assert cells(rows, "step")["Sharpe gained"] == ""
    line = ablation_of(rows, 0.9).lines[1]
    assert line.sharpe.value is None and line.pnl.value == 2.5


@pytest.fixture
def lake(tmp_path):
    """Two complete folds and a partial one, one seed, none and step."""
    lake = Lake(tmp_path)
    for fold, status in enumerate(("complete", "complete", "partial")):
        rows = [
            {
                key: value
                for key, value in run(fold, 0, variant, 10.0 * variant.count("step"), 1).items()
                if key not in ("n_bars", "fold_id")
            }
            | dict.fromkeys(("low", "high", "validation_delta", "verdict"))
            for variant in ("none", "step")
        ]
        tables = {
            "fold": [fold_row(fold, 2, status)],
            "equity": joined(*(equity_rows([1.0, 2.0], fold, 0, v) for v in ("none", "step"))),
            "skill_ablation": rows,
        }
        write_fold_result(lake, header(fold, STUDY), tables)
    metric = {"metric": [metric_row("sharpe", 0.5, seed=0, variant="chosen")]}
    write_part(lake, PartHeader("walk_forward", "r", STUDY, "SP500"), metric)
    publish(lake)
    return lake


def test_the_summary_reads_complete_folds_from_the_store(lake):
    (summary,) = summarize(lake)
    found = summary.ablation
    assert (found.folds, found.seeds, found.confidence) == (2, 1, 0.95)
    assert [line.variant for line in found.lines] == ["none", "step", "chosen"]
    assert found.lines[1].pnl.value == 10.0
    assert found.lines[1].changed == 0.5  # one of two decisions
    value = json.loads(json.dumps(summary.as_json(), allow_nan=False))
    assert value["ablation"]["variants"][1]["pnl"] == {"value": 10.0, "low": None, "high": None}
    page = html(summary, [], [])
    assert "<h2>Skills</h2>" in page and "<td>step</td>" in page
    assert found.title in page


def test_the_console_prints_the_ablation_last(lake, capsys):
    from pipelines.commands.store import show_summaries

    show_summaries(summarize(lake))
    text = capsys.readouterr().out
    assert text.index("skill banks: each variant") > text.index("out of sample")
    (line,) = [line for line in text.splitlines() if line.startswith("step")]
    shown = "step 0 of 2 50.0% +0.10 +10 not adopted: no difference shown"
    assert " ".join(line.split()) == shown
