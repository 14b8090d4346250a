"""The compiled kernels of skill banks: files, sizes, and which items share a sum."""

from __future__ import annotations

from functools import cache

from opencl.devices import Device
from opencl.programs import Program
from opencl.retrieval import PART_ROW, by_group

FILES = (
    "skill_score.cl", "skill_metric.cl", "skill_cells.cl", "skill_update.cl", "skill_utility.cl",
    "d2skill.cl", "skill_judge.cl",
)  # fmt: skip
CHUNK = 32  # rows of lanes in local memory, 8 KiB


def bank_sizes(device: Device) -> dict[str, int]:
    """Return the constants that the kernels are specialised to; ITEMS share one bank."""
    return {"ITEMS": 256 if by_group(device) else 1, "CHUNK": CHUNK, "PART_ROW": PART_ROW}


@cache
def bank_program(device: Device) -> Program:
    """Return the compiled kernels of a device, one object for all calls."""
    return Program(device, FILES, bank_sizes(device))
