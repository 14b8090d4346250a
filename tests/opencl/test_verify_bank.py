"""The bank's part of `verify`: it passes here, and names the arrays when a kernel is wrong."""

import pytest

from opencl import verify_bank
from opencl.devices import select


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(verify_bank, "ROWS", 50)
    monkeypatch.setattr(verify_bank, "SINGLE", 15)


def wrong_columns(device, kind="full", tolerance=0.0):
    rows = list(verify_bank.verify_bank(device, kind, 1, tolerance, 0.995))
    assert all(row.values > 0 for row in rows)
    return {row.column for row in rows if not row.ok}


@pytest.mark.parametrize("kind", verify_bank.KINDS)
def test_this_machine_agrees_with_the_definition(device, kind):
    assert wrong_columns(device, kind) == set()


def test_an_inexact_device_is_judged_update_by_update():
    rows = list(verify_bank.verify_bank(select(), "full", 1, 5e-5, 0.995))
    assert rows and all(row.ok for row in rows)
    assert len({row.what for row in rows}) == 4  # two of updates, two of what follows


def test_wrong_kernels_are_found_by_name(broken):
    broken(
        ("s->mass = MASS_KEEP * s->mass", "s->mass = MASS_GAIN * s->mass"),
        ("0.5f * (before[d] + after[d])", "after[d]"),
        ("return slot >= 0 ? h +", "return slot >= 0 ? h -"),
    )
    assert wrong_columns(select()) == {"mass", "influence of one use", "corrected state"}


def test_a_wrong_order_of_a_sum_is_found(broken):
    """Lanes added one after the other: equal in every decision, different in the last bits."""
    broken(("(s.a + s.c) + (s.b + s.d)", "((s.a + s.b) + s.c) + s.d"))
    wrong = wrong_columns(select())
    assert {"directions", "corrections"} <= wrong
