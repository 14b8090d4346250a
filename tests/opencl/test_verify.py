"""`verify` passes on every device here, and fails, by name, when a kernel is wrong."""

import numpy as np
import pytest

from backtest.market.layout import Formula
from opencl import verify, verify_bank
from opencl.devices import Device, select


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(verify, "EPISODES", 37)
    monkeypatch.setattr(verify, "STEPS", 48)
    monkeypatch.setattr(verify, "HIDDEN", (16, 16))
    monkeypatch.setattr(verify, "ATOMS", 11)
    monkeypatch.setattr(verify_bank, "ROWS", 30)
    monkeypatch.setattr(verify_bank, "SINGLE", 10)


@pytest.fixture
def one_formula(monkeypatch):
    """Every formula is programs of its own to compile, and a wrong kernel shows under any."""
    monkeypatch.setattr(verify, "Formula", (Formula.CALIBRATED,))


def test_this_machine_agrees_with_the_definition(device):
    parts = []
    done = verify.verify(device, seed=1, progress=parts.append)
    assert done.ok and done.exact and done.failed == ()
    assert done.device == device.name
    # random numbers; formula x fill x lots; a rollout per formula; a bank per representation
    assert len(parts) == 1 + 8 + 2 + 2
    market = [row for row in done.rows if not row.what.startswith("skill bank")]
    assert len(market) == 1 + 8 * (19 + 16 + 19 + 1 + 11) + 2 * (19 + 13 + 2)
    assert all(row.values > 0 for row in done.rows)
    whole = [row for row in done.rows if row.column in ("segment_complete", "end", "words")]
    assert all(row.largest == 0 for row in whole)


@pytest.mark.usefixtures("one_formula")
def test_a_wrong_constant_in_the_market_is_found(broken):
    broken(("1.0f / 25.0f", "1.0f / 24.0f"), ("t < DSR_WARMUP", "t <= DSR_WARMUP"))
    done = verify.verify(select())
    assert not done.ok
    wrong = {row.column for row in done.failed}
    assert {"trend", "reward"} <= wrong
    assert wrong <= {"trend", "reward", "dsr"}
    assert all(row.different > 0 and row.largest > 0 for row in done.failed)


@pytest.mark.usefixtures("one_formula")
def test_a_wrong_rule_of_the_fill_is_found(broken):
    broken(("nxt.low < limit", "nxt.low <= limit"))
    wrong = {row.column for row in verify.verify(select()).failed}
    assert {"filled", "position", "cash"} <= wrong


@pytest.mark.usefixtures("one_formula")
def test_wrong_random_numbers_and_a_wrong_policy_are_found(broken):
    broken(
        ("i < PHILOX_ROUNDS", "i < PHILOX_ROUNDS - 1"),
        ("100.0f * scale", "99.0f * scale"),
        ("fma(e, ", "fma(e * 1.0001f, "),
    )
    wrong = {row.column for row in verify.verify(select()).failed}
    assert wrong == {"words", "portfolio 5", "action values", "actions agree"}


def test_an_inexact_device_gets_the_stated_tolerance_for_floats_only(monkeypatch):
    monkeypatch.setattr(Device, "correctly_rounded", property(lambda self: False))
    done = verify.verify(select())
    assert done.ok and not done.exact


def test_compare_exactly():
    row = verify.compare("w", "c", np.array([1, 2, 3]), np.array([1, 2, 5]))
    assert (row.values, row.different, row.largest, row.ok) == (3, 1, 2.0, False)
    floats = np.array([1, 2, np.nan], np.float32)
    assert verify.compare("w", "c", floats, floats).different == 1  # NaN equals nothing
    assert verify.compare("w", "c", floats[:2], floats[:2]).ok


def test_compare_within_a_tolerance():
    wanted = np.array([100, 0, -50], np.float32)
    seen = wanted + np.array([0.05, 0.05, 0], np.float32)
    assert verify.compare("w", "c", wanted, seen, 1e-3).ok  # 0.05 of 100
    row = verify.compare("w", "c", wanted, seen, 1e-4)
    assert (row.different, row.ok) == (2, False)
    assert row.largest == pytest.approx(0.05, rel=1e-4)
    assert not verify.compare("w", "c", wanted, seen * np.float32(np.nan), 1e-3).ok
    whole = np.array([100, 1], np.int32)
    assert not verify.compare("w", "c", whole, whole + 1, 0.5).ok  # integers stay exact
