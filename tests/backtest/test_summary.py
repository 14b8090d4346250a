"""The summary of a study on hand-written rows of the store, and what the verdict makes of it."""

import json
from datetime import UTC, date, datetime

import pytest

from backtest.errors import StoreError
from backtest.figures import Figure, number, percent, plain
from backtest.lake import Lake
from backtest.manifest import PartHeader
from backtest.publication import publish
from backtest.store import write_part
from backtest.summary import COLUMNS, Line, Summary, summarize
from backtest.verdict import verdict
from tests.backtest.fold_rows import fold_row, metric_row, write_fold

STUDY = "a" * 16
CHANCE = "p_improvement_over_"


def policy_rows(seeds=2, **chances):
    """Metric rows of a policy: net return 10 %, Sharpe 0.5, interval over zero in seed 1 only."""
    rows = [
        metric_row("net_return", 0.10, low=0.05, high=0.15, n=seeds),
        metric_row("sharpe", 0.50, low=0.40, high=0.60, n=seeds),
        metric_row("n_trades", 106.5),
        metric_row("exposure", 0.55),
    ]
    for seed in range(seeds):
        rows.append(metric_row("sharpe", 0.5, seed=seed, low=seed - 0.5, high=2.0, n=502))
    for rival, (value, low, high) in chances.items():
        rows.append(metric_row(CHANCE + rival, value, low=low, high=high, n=8))
    return rows + [{**row, "variant": "chosen"} for row in rows]


def baseline_rows(variant, seed=-1, net_return=0.2, sharpe=0.9):
    kind = {"seed": seed, "variant": variant, "kind": "baseline", "n": 502}
    return [
        metric_row("net_return", net_return, **kind),
        metric_row("sharpe", sharpe, low=-0.1, high=1.9, **kind),
        metric_row("cagr", None, **kind),
    ]


@pytest.fixture
def lake(tmp_path):
    lake = Lake(tmp_path)
    write_fold(lake, [10.0, 20.0], study=STUDY)
    write_fold(lake, [10.0, 20.0], fold=1, study=STUDY)
    rows = policy_rows(
        buy_and_hold=(0.25, 0.1, 0.4), random=(0.6, 0.45, 0.8), flat=(0.75, 0.6, 1.0)
    )
    rows += [*baseline_rows("buy_and_hold"), *baseline_rows("random", seed=0)]
    rows += baseline_rows("flat", net_return=0.0, sharpe=None)
    plan = {"fold_id": "missing", "fold_key": "2003-01-01"} | fold_row(2, status="missing")
    tables = {"metric": rows, "fold": [plan]}
    write_part(lake, PartHeader("walk_forward", "r", STUDY, "SP500"), tables)
    publish(lake)
    return lake


def test_the_table_is_what_the_store_holds(lake):
    (summary,) = summarize(lake)
    assert summary.study_id == STUDY
    assert summary.folds == {"complete": 2, "missing": 1}
    assert (summary.first, summary.last) == (date(2020, 1, 31), date(2020, 2, 3))  # bars 30 to 33
    assert (summary.sessions, summary.seeds, summary.confidence) == (502, 2, None)
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in summary.table]
    assert [row[""] for row in rows] == ["policy", "buy and hold", "flat", "random (draw 0)"]
    policy, hold, flat, random = rows
    assert policy["net return"] == "10.0%"
    assert policy["Sharpe"] == "0.50 [0.40, 0.60]"
    assert policy["trades"] == "106.5"
    assert policy["P(policy better)"] == ""
    assert hold["P(policy better)"] == "0.25 [0.10, 0.40]"
    assert hold["CAGR"] == ""
    assert flat["Sharpe"] == ""
    assert random["P(policy better)"] == "0.60 [0.45, 0.80]"
    assert summary.title == (
        "SP500 out of sample: 2020-01-31 to 2020-02-03, 2 folds, 502 sessions, 2 seeds"
    )


def test_json_holds_every_metric_and_no_nan(lake):
    (summary,) = summarize(lake, STUDY, "SP500")
    value = json.loads(json.dumps(summary.as_json(), allow_nan=False))
    policy = value["lines"][0]
    assert policy["variant"] == "chosen"
    assert policy["metrics"]["sharpe"] == {"value": 0.5, "low": 0.4, "high": 0.6}
    assert value["sharpe_by_seed"] == [
        {"value": 0.5, "low": -0.5, "high": 2.0},
        {"value": 0.5, "low": 0.5, "high": 2.0},
    ]


def test_the_verdict_is_honest_about_losing(lake):
    (summary,) = summarize(lake)
    assert verdict(summary) == (
        "Out of sample the policy did worse than buy and hold: P = 0.25 [0.10, 0.40], net return "
        "10.0% against 20.0%, Sharpe 0.50 against 0.90. Over time, the interval of its Sharpe "
        "lies above zero in 1 of 2 seeds. It cannot be told from random trading with the same "
        "turnover (P = 0.60 [0.45, 0.80]). P resamples seeds within folds, not the years "
        "themselves, and 2 seeds are too few for it to say much: use 10 or more. Folds not in "
        "these figures: 1 missing."
    )


def test_one_seed_has_figures_but_no_interval_over_seeds(tmp_path):
    lake = Lake(tmp_path)
    write_fold(lake, [1.0], study=STUDY)
    # with one seed the store holds seed 0, and at -2 nothing but the probabilities
    rows = [
        metric_row("net_return", -0.1, seed=0, variant="chosen", n=9),
        metric_row("sharpe", -0.2, seed=0, variant="chosen", low=-1.0, high=0.6, n=9),
        metric_row(CHANCE + "buy_and_hold", 1.0, variant="chosen"),
        *baseline_rows("buy_and_hold", net_return=-0.3),
    ]
    write_part(lake, PartHeader("walk_forward", "r", STUDY, "SP500"), {"metric": rows})
    publish(lake)
    (summary,) = summarize(lake)
    assert summary.table[0][1:4] == ["-10.0%", "", "-0.20 [-1.00, 0.60]"]
    text = verdict(summary)
    assert "did not beat buy and hold: P = 1.00, net return -10.0% against -30.0%" in text
    assert "1 seed is too few" in text


def test_unknown_studies_and_instruments_are_named(lake, tmp_path):
    with pytest.raises(StoreError, match=f"no study nothing.*it holds {STUDY}"):
        summarize(lake, "nothing")
    with pytest.raises(StoreError, match="no instrument NQ; it has SP500"):
        summarize(lake, STUDY, "NQ")
    empty = Lake(tmp_path / "empty")
    with pytest.raises(StoreError, match="no store yet"):
        summarize(empty)
    publish(empty)
    with pytest.raises(StoreError, match="no study yet"):
        summarize(empty)


def test_the_last_run_comes_first(lake):
    write_fold(lake, [5.0], study="b" * 16)
    for study, year in ((STUDY, 2024), ("b" * 16, 2025)):
        started = datetime(year, 1, 1, tzinfo=UTC)
        run = {"started": started, "finished": None, "device": None, "driver": None}
        run |= {"host_os": "x", "status": "running", "command": "c"}
        write_part(lake, PartHeader("run", study[0], study), {"run": [run]})
    publish(lake)
    (summary,) = summarize(lake)
    assert summary.study_id == "b" * 16
    assert summary.lines == ()
    assert verdict(summary) == "Nothing was evaluated out of sample yet."


def made(seeds=10, chance=None, **figures):
    """A summary of a policy and buy and hold, with these figures of the policy."""
    values = {"net_return": 0.1, "sharpe": 0.5, "n_trades": 99.0, "exposure": 0.5} | figures
    policy = {name: Figure(value) for name, value in values.items()}
    policy |= {CHANCE + "buy_and_hold": chance or Figure(0.9, 0.8, 1.0)}
    hold = {"net_return": Figure(0.05), "sharpe": Figure(0.4)}
    lines = (Line("chosen", "policy", policy), Line("buy_and_hold", "buy and hold", hold))
    by_seed = tuple(Figure(0.5, 0.1, 0.9) for _ in range(seeds))
    return Summary(STUDY, "X", {"complete": 8}, None, None, 2000, seeds, 0.95, lines, by_seed)


def test_beat_is_said_only_with_enough_seeds():
    assert "the policy beat buy and hold" in verdict(made())
    assert "too few" not in verdict(made())
    assert "the policy was ahead of buy and hold" in verdict(made(seeds=3))
    assert "the policy did not beat buy and hold" in verdict(made(chance=Figure(0.6, 0.5, 0.7)))
    assert "the 95% interval of its Sharpe lies above zero in 10 of 10 seeds" in verdict(made())


@pytest.mark.parametrize(
    ("figures", "sentence"),
    [
        ({"net_return": 0.01}, "It won more folds and yet earned less in all."),
        ({"ruined": 0.1}, "It was ruined in at least one seed."),
        ({"exposure": 0.02}, "It held a position on only 2.0% of the bars: little was tested."),
        ({"n_trades": 12.0}, "It closed only 12 trades: little was tested."),
        ({"sharpe": None}, "Sharpe undefined against 0.40"),
    ],
)
def test_the_verdict_warns(figures, sentence):
    assert sentence in verdict(made(**figures))
    assert sentence not in verdict(made())


def test_cells():
    assert percent(Figure(-0.01234)) == "-1.2%"
    assert percent(Figure(None)) == ""
    assert number(Figure(1234.0)) == "1,234"
    assert number(Figure(None)) == ""
    assert plain(Figure(0.5, None, 1.0), bounds=True) == "0.50"
    assert plain(Figure(-0.001, -0.004, 0.5), bounds=True) == "0.00 [0.00, 0.50]"
    assert plain(Figure(None)) == ""
