"""Arrays there and back again."""

import numpy as np
import pytest

from backtest.errors import DeviceError
from backtest.market.layout import BAR
from opencl import buffers
from opencl.devices import Device


def test_an_array_comes_back(device: Device) -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    held = buffers.upload(device, array)
    assert (held.shape, held.dtype, held.nbytes) == ((2, 3, 4), np.float32, 96)
    np.testing.assert_array_equal(held.read(), array)


def test_the_device_has_its_own_copy(device: Device) -> None:
    array = np.arange(5, dtype=np.int32)
    held = buffers.upload(device, array)
    array[:] = 0
    assert held.read().tolist() == [0, 1, 2, 3, 4]


def test_columns_of_a_matrix_are_made_contiguous(device: Device) -> None:
    array = np.arange(12, dtype=np.int32).reshape(3, 4)
    assert buffers.upload(device, array[:, 1]).read().tolist() == [1, 5, 9]
    np.testing.assert_array_equal(buffers.upload(device, array.T).read(), array.T)


def test_records_come_back(device: Device) -> None:
    records = np.zeros(3, BAR.dtype)
    records["close"] = [1, 2, 3]
    assert buffers.upload(device, records).read()["close"].tolist() == [1, 2, 3]


def test_write_replaces_the_contents(device: Device) -> None:
    held = buffers.empty(device, 3, np.float32)
    assert held.shape == (3,)
    held.write(np.array([1, 2, 3], np.float32))
    assert held.read().tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="float64"):
        held.write(np.zeros(3))
    with pytest.raises(ValueError, match=r"\(4,\)"):
        held.write(np.zeros(4, np.float32))


def test_an_empty_array_is_allowed(device: Device) -> None:
    held = buffers.upload(device, np.zeros((0, 4), np.float32))
    assert held.nbytes == 0
    assert held.read().shape == (0, 4)


def test_only_a_writable_upload_is_written_by_kernels(device: Device) -> None:
    import pyopencl as cl

    array = np.zeros(4, np.float32)
    flags = [
        buffers.upload(device, array, writable=writable).buffer.flags for writable in (False, True)
    ]
    assert flags[0] & cl.mem_flags.READ_ONLY
    assert flags[1] & cl.mem_flags.READ_WRITE
    assert not any(flag & cl.mem_flags.USE_HOST_PTR for flag in flags)


def test_an_array_beyond_the_device_is_refused_with_both_sizes(device: Device) -> None:
    limit = device.handle.max_mem_alloc_size
    with pytest.raises(DeviceError, match=rf"{limit}: use fewer episodes"):
        buffers.empty(device, limit + 1, np.uint8)


def test_a_device_without_room_says_so(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyopencl as cl

    def full(*_: object) -> None:
        raise cl.MemoryError("create_buffer", cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE, "full")

    monkeypatch.setattr(cl, "Buffer", full)
    with pytest.raises(DeviceError, match=r"no room for float32\(8,\), 32 bytes"):
        buffers.empty(device, 8, np.float32)
