"""The measured arithmetic: what the market kernels' bit-equality rests on."""

import numpy as np
import pytest

from backtest.errors import KernelError
from opencl import probe
from opencl.devices import Device


def test_the_device_computes_numpys_bits(device: Device) -> None:
    assert probe.probe(device).inexact == ()
    assert device.correctly_rounded


def test_the_device_is_asked_once(device: Device) -> None:
    assert probe.probe(device) is probe.probe(device)


@pytest.mark.parametrize("row", range(4))
def test_a_difference_of_one_bit_is_named(
    device: Device, row: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y, wanted = probe._arithmetic()
    wanted[row, -1] = np.nextafter(wanted[row, -1], np.float32(np.inf))
    monkeypatch.setattr(probe, "_arithmetic", lambda: (x, y, wanted))
    answer = probe.probe.__wrapped__(device)
    assert answer.inexact == (probe.PROPERTIES[row],)


def test_a_device_that_does_not_run_is_named(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyopencl as cl

    def lost(*_: object) -> None:
        raise cl.RuntimeError("enqueue_copy", cl.status_code.OUT_OF_RESOURCES, "lost")

    monkeypatch.setattr(cl, "enqueue_copy", lost)
    with pytest.raises(KernelError, match="does not run it"):
        probe.probe.__wrapped__(device)


def test_its_numbers_tell_good_arithmetic_from_fast() -> None:
    """Each shortcut a compiler may take changes many of the compared values."""
    x, y, (quotient, root, product, tiny) = probe._arithmetic()
    assert (x * (np.float32(1) / y) != quotient).mean() > 0.1
    assert (np.float32(1) / (np.float32(1) / np.sqrt(x)) != root).mean() > 0.1
    fused = (x.astype(float) * y - x).astype(np.float32)
    assert (fused != product).mean() > 0.1
    assert ((tiny != 0) & (np.abs(tiny) < np.finfo(np.float32).tiny)).mean() > 0.1
