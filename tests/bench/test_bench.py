"""The benchmarks run, and refuse to time what is wrong; their figures are not judged here."""

import json
import sys

import numpy as np
import pytest

from backtest.market.layout import TOTALS, Formula
from opencl.devices import select
from tests.bench import __main__ as bench
from tests.bench import (
    bank,
    evaluation,
    learner,
    market,
    memory,
    rollout,
    scenario,
    smoke,
    strategies,
    transfer,
    walkforward,
)
from tests.bench.operations import Counting, step_operations
from tests.bench.rows import Row
from tests.bench.scene import gaussian_tape


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for module in (market, rollout, scenario, transfer):
        monkeypatch.setattr(module, "GPU_ENVS", (64, 128))
        monkeypatch.setattr(module, "CPU_ENVS", (64, 128))
        monkeypatch.setattr(module, "BARS", 2000)
    for name in ("GPU_STRATEGIES", "CPU_STRATEGIES"):
        monkeypatch.setattr(market, name, (64,))
    monkeypatch.setattr(market, "_steps", lambda device, n, quick: 64)
    for module in (rollout, scenario, transfer):
        monkeypatch.setattr(module, "HIDDEN", (20, 20))  # a compiler unrolls 16 and takes long
        monkeypatch.setattr(module, "ATOMS", 11)
    monkeypatch.setattr(scenario, "SIZES", {"tiny": (2, 3, 4)})
    monkeypatch.setattr(scenario, "REPEATS", 1)
    for name, value in (
        ("SMALL", {"scenarios": 2, "horizon": 3, "latent": 4}),
        ("BARS", 100),
        ("STEPS", 64),
        ("EPISODES", 4),
        ("CPU_UPDATES", 2),
        ("BATCHES", (16,)),
    ):
        monkeypatch.setattr(learner, name, value)
    for name, value in (("GPU_QUERIES", 64), ("CPU_QUERIES", 64), ("DIM", 70), ("ROWS", 40)):
        monkeypatch.setattr(bank, name, value)


def test_one_command_measures_everything(monkeypatch, tmp_path, capsys):
    path = tmp_path / "figures.json"
    parts = ("market", "rollout", "scenario", "transfer", "bank", "learner")
    only = [word for part in parts for word in ("--only", part)]
    monkeypatch.setattr(sys, "argv", ["x", "--quick", "--json", str(path), *only])
    assert bench.main() == 0
    written = json.loads(path.read_text())
    assert written["device"]["name"] == select().name
    assert written["command"].startswith("python -m tests.bench --quick")
    names = [row["name"] for row in written["rows"]]
    assert any("calibrated" in name for name in names)
    assert any("composite" in name for name in names)
    assert any("torch" in name for name in names)
    assert sum("copies" in name for name in names) == 1
    assert sum("both banks" in name for name in names) == 1
    banks = [name.split(",")[0] for name in names if name.startswith(("retrieval", "updates"))]
    assert banks == ["retrieval", "updates", "updates"]
    learned = [name for name in names if name.startswith("learner")]
    assert any("mlp" in name for name in learned) and any("scenario" in name for name in learned)
    assert all(row["figure"] > 0 for row in written["rows"])
    assert "steps/s" in capsys.readouterr().out


def test_a_wrong_market_is_not_timed(monkeypatch):
    monkeypatch.setattr(market, "random_actions", lambda *_: np.zeros((64, 64, 4), np.uint8))
    with pytest.raises(AssertionError, match="differs from NumPy; not timed"):
        market.run(select(), quick=True)


def test_a_wrong_backtest_is_not_timed(monkeypatch):
    monkeypatch.setattr(market, "walk_totals", lambda tape, walk: np.zeros(64, TOTALS.dtype))
    with pytest.raises(AssertionError, match="the backtest differs from NumPy; not timed"):
        market.run(select(), quick=True)


def test_operations_of_a_step_are_counted():
    composite, calibrated = (step_operations(gaussian_tape(2, formula)) for formula in Formula)
    assert 100 < composite < calibrated < 200
    numbers = np.ones(3, np.float32).view(Counting)
    Counting.operations = 0
    _ = np.where(numbers > 0, numbers, numbers) * numbers + np.float32(1)  # one select, two each
    assert Counting.operations == 6


def test_a_wrong_bank_is_not_timed(monkeypatch):
    monkeypatch.setattr(bank, "retrieve_rows", lambda snapshot, h: np.full(len(h), 7))
    with pytest.raises(AssertionError, match="slots differ from NumPy; not timed"):
        bank.run(select(), quick=True)


def test_a_wrong_part_ends_with_its_name_and_exit_code_1(monkeypatch, capsys):
    def measure(part, device, quick):
        if part == "bank":
            raise AssertionError("slots differ; not timed")
        if part == "memory":
            raise OSError("no room")
        return [Row(part, 1.0, "steps/s")]

    monkeypatch.setattr(bench, "measure", measure)
    only = ("--only", "bank", "--only", "memory", "--only", "market")
    monkeypatch.setattr(sys, "argv", ["x", *only])
    assert bench.main() == 1
    shown = capsys.readouterr().out.splitlines()
    assert shown[-2] == "FAIL bank: slots differ; not timed"
    assert shown[-1] == "FAIL memory: OSError: no room"
    assert any("market" in line for line in shown[:-2])


def test_a_way_that_hands_over_other_numbers_is_not_timed(monkeypatch):
    ways = transfer._ways(select())
    monkeypatch.setattr(transfer, "_ways", lambda device: ways)
    real = ways[-1].finish
    monkeypatch.setattr(
        ways[-1], "finish", lambda *given: {k: v * 0 for k, v in real(*given).items()}
    )
    with pytest.raises(AssertionError, match=f"by {ways[-1].way} differs; not timed"):
        transfer.run(select(), quick=True)


def test_a_missing_package_is_said_and_not_hidden(monkeypatch):
    monkeypatch.setitem(sys.modules, "tests.bench.features", None)
    (row,) = bench.measure("features", select(), quick=True)
    assert row.detail.startswith("not measured")
    assert row.plain()["figure"] is None


def test_folds_in_one_launch_are_measured_and_compared(monkeypatch):
    monkeypatch.setattr(evaluation, "HIDDEN", (20, 20))
    monkeypatch.setattr(evaluation, "ATOMS", 11)
    for name, value in (("STEPS", 40), ("FOLDS", 2), ("SEEDS", 2)):
        monkeypatch.setattr(evaluation, name, {"gpu": value, "cpu": value})
    one, many = evaluation.run(select(), quick=True)
    assert "launches 1, window uploads 1" in one.detail
    assert "launches 4, window uploads 4" in many.detail
    monkeypatch.setattr(
        evaluation, "launch", lambda *given: [np.random.default_rng().random(3)] * 4
    )
    with pytest.raises(AssertionError, match="one launch differs from many; not timed"):
        evaluation.run(select(), quick=True)


def test_memory_is_planned_and_measured(monkeypatch):
    monkeypatch.setattr(memory, "HIDDEN", (20, 20))
    monkeypatch.setattr(memory, "ATOMS", 11)
    axes = {"bars": (300, 600, 900), "envs": (64, 128, 192), "slots": (4, 8, 12)}
    monkeypatch.setattr(memory, "AXES", {"gpu": axes, "cpu": axes})
    monkeypatch.setattr(memory, "FIXED", {"gpu": (300, 64), "cpu": (300, 64)})
    rows = memory.run(select(), quick=True)
    lines = [row for row in rows if "line over" in row.name]
    assert [row.unit for row in lines] == ["B/bar", "B/env", "B/slot"]
    assert all("planned" in row.detail and "(R2 1.0000)" in row.detail for row in lines[:2])
    assert memory.fit([1, 2, 3], [5, 7, 9]) == (pytest.approx(2), pytest.approx(1))


@pytest.mark.slow
def test_a_walk_forward_says_what_was_run_and_where_time_went():
    whole, *phases = walkforward.run(select(), quick=True)
    assert "1 folds x 1 seeds" in whole.detail and "of the production budget" in whole.detail
    assert {"collection", "updates", "stage 0", "features"} <= {
        row.name.removeprefix("walk-forward, ") for row in phases
    }
    assert sum(row.figure for row in phases) == pytest.approx(whole.figure)


def test_figures_of_strategies_are_compared_with_accounts(monkeypatch):
    monkeypatch.setattr(strategies, "BARS", {"gpu": 20_000, "cpu": 20_000})
    monkeypatch.setattr(strategies, "STRATEGIES", {"gpu": (64,), "cpu": (64,)})
    account, figures = strategies.run(select(), quick=True)
    assert account.figure > 0 and "times the accounts; 1 blocks" in figures.detail
    monkeypatch.setattr(strategies, "CLOSE", -1.0)
    with pytest.raises(AssertionError, match="is not the account's; not timed"):
        strategies.run(select(), quick=True)


def test_a_smoke_test_that_fails_is_not_timed(monkeypatch):
    monkeypatch.setattr(smoke, "COMMAND", (sys.executable, "-c", "raise SystemExit(3)"))
    with pytest.raises(AssertionError, match="the run ended with 3"):
        smoke.run(select(), quick=True)
