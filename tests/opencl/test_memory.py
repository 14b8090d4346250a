"""Planned bytes: their sum, how they are told, and what is refused."""

from dataclasses import replace

import pytest

from backtest.errors import DeviceError
from opencl.devices import select
from opencl.memory import Planned, told_bytes


def test_parts_add_up_and_are_told_by_size():
    planned = Planned({"tables": 3 * 2**20, "outputs": 2**30, "episodes": 0})
    assert planned.total == 3 * 2**20 + 2**30 and dict(planned)["tables"] == 3 * 2**20
    assert str(planned) == "1.00 GiB (outputs 1.00 GiB, tables 3.00 MiB)"


@pytest.mark.parametrize(
    "size, told", [(0, "0 B"), (1023, "1,023 B"), (1536, "1.50 KiB"), (5 * 2**40, "5,120 GiB")]
)
def test_sizes(size, told):
    assert told_bytes(size) == told


def test_too_much_is_refused_with_its_parts():
    device = replace(select(), global_memory=1000)
    Planned({"a": 600, "b": 400}).check(device, "use less")
    with pytest.raises(DeviceError, match=r"\(a 600 B, b 401 B\) planned, .* use less"):
        Planned({"a": 600, "b": 401}).check(device, "use less")
