"""Memory that is mapped half-way is given back; the driver is played by a recorder."""

import ctypes
from contextlib import ExitStack

import pytest

from backtest.errors import DeviceError
from opencl.exchange import cuda_driver

FREES = ("cuMemUnmap", "cuMemAddressFree", "cuMemRelease")
STEPS = (
    "cuMemCreate",
    "cuMemAddressReserve",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemExportToShareableHandle",
)


class Driver:
    """Every function succeeds but one, which reports that memory is full."""

    def __init__(self, failing=None):
        self.failing, self.called = failing, []

    def __getattr__(self, name):
        def function(*arguments):
            self.called.append(name)
            if name == "cuGetErrorName":
                arguments[1]._obj.value = b"CUDA_ERROR_OUT_OF_MEMORY"
                return 0
            return cuda_driver.OUT_OF_MEMORY if name == self.failing else 0

        return function


@pytest.mark.parametrize("failing", STEPS)
def test_an_error_half_way_frees_what_was_made(monkeypatch, failing):
    driver = Driver(failing)
    monkeypatch.setattr(cuda_driver, "library", lambda: driver)
    with (
        pytest.raises(DeviceError, match=f"{failing}: CUDA_ERROR_OUT_OF_MEMORY; use fewer"),
        ExitStack() as undo,
    ):
        cuda_driver.mapped(0, 2**21, undo)
    made = STEPS.index(failing)  # of memory, address range and mapping
    freed = [name for name in driver.called if name in FREES]
    assert freed == list(FREES[max(0, 3 - made) :])


def test_a_whole_mapping_is_undone_in_the_other_order(monkeypatch):
    driver = Driver()
    monkeypatch.setattr(cuda_driver, "library", lambda: driver)
    with ExitStack() as undo:
        cuda_driver.mapped(0, 2**21, undo)
        assert driver.called == list(STEPS)
    assert driver.called[len(STEPS) :] == list(FREES)


def test_structs_have_the_sizes_of_the_header():
    assert ctypes.sizeof(cuda_driver.Properties) == 32
    assert ctypes.sizeof(cuda_driver.Access) == 12
