"""Runs the same on banks of the definition and of a device, and compares every array."""

import numpy as np

from backtest.agent.bank import Bank


def copy_of(bank: Bank) -> Bank:
    """Return an independent bank in the same state."""
    made = Bank(bank.slots, bank.dim, key_dim=bank.key_dim, **bank.parameters)
    made.load_state_dict(bank.state_dict())
    return made


def assert_same_banks(expected, seen, what=""):
    """Every array of every bank is equal; the message lists those that are not."""
    assert len(expected) == len(seen)
    for place, (mine, theirs) in enumerate(zip(expected, seen, strict=True)):
        arrays = theirs.state_dict()
        wrong = {
            name: int((array != arrays[name]).sum())
            for name, array in mine.state_dict().items()
            if not np.array_equal(array, arrays[name]) or array.dtype != arrays[name].dtype
        }
        assert not wrong, f"{what} bank {place}: values that differ, by array: {wrong}"


def assert_same_results(expected, seen):
    """Decisions and slots of `update_rows`, one pair a bank, are equal."""
    for column, name in enumerate(("decision", "slot")):
        wanted = np.stack([pair[column] for pair in expected])
        np.testing.assert_array_equal(seen[column], wanted, err_msg=name)
