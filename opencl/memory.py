"""Bytes that something takes on a device: computed before it is allocated, told, and checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from backtest.errors import DeviceError
from opencl.devices import Device

UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))


@dataclass(frozen=True)
class Planned(Mapping[str, int]):
    """Bytes by what they are for.

    Attributes:
        parts: by name; what is used one after the other counts once.
    """

    parts: Mapping[str, int]

    def __getitem__(self, name: str) -> int:
        return self.parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.parts.values())

    def __str__(self) -> str:
        """Return the total and its parts, the largest first."""
        parts = sorted(self.parts.items(), key=lambda part: -part[1])
        told = ", ".join(f"{name} {told_bytes(size)}" for name, size in parts if size)
        return f"{told_bytes(self.total)} ({told})"

    def check(self, device: Device, cure: str) -> None:
        """Refuse what the device cannot hold.

        Args:
            device: has to hold it.
            cure: what the user can do.

        Raises:
            DeviceError: names every part.
        """
        if self.total > device.global_memory:
            raise DeviceError(
                f"{device.name}: {self} planned, there are {told_bytes(device.global_memory)}; "
                f"{cure}"
            )


def told_bytes(size: int) -> str:
    """Return a size with three digits or more and its unit: 1.25 GiB."""
    factor, unit = next((f, u) for f, u in UNITS if size >= f or f == 1)
    value = size / factor
    digits = 0 if factor == 1 or value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} {unit}"
