"""What devices can do at most, measured through OpenCL, and the share of it that a figure takes."""

from __future__ import annotations

from dataclasses import dataclass

from opencl.devices import Device


@dataclass(frozen=True)
class Peak:
    """Rates of one device: operations a second, an addition or a product each, and bytes."""

    fp32: float
    bf16: float
    bandwidth: float


# By a part of the device's name. H200: fused multiply-adds and mma.sync measured by kernels that do
# nothing else; HBM3e by its data sheet.
PEAKS = {"H200": Peak(fp32=58e12, bf16=623e12, bandwidth=4.8e12)}
UNITS = {"fp32": ("TFLOP/s", 1e12), "bf16": ("TFLOP/s", 1e12), "bandwidth": ("TB/s", 1e12)}


def share(device: Device, kind: str, rate: float) -> str:
    """Return "20 % of fp32's 58 TFLOP/s", or "" for a device whose peak is not known.

    Args:
        device: where it ran.
        kind: a field of `Peak`.
        rate: operations or bytes a second.
    """
    for name, peak in PEAKS.items():
        if name in device.name:
            most = getattr(peak, kind)
            unit, scale = UNITS[kind]
            label = "memory" if kind == "bandwidth" else kind
            return f"{100 * rate / most:.3g} % of {label}'s {most / scale:,.3g} {unit}"
    return ""
