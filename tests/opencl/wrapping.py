"""Runs a wrapper kernel and compares records column by column."""

import numpy as np

from opencl.buffers import empty, upload
from opencl.programs import Program


def evaluate(program: Program, name: str, n: int, *arguments, out, group: int | None = None):
    """Run kernel `name` over n work-items and return its outputs.

    Args:
        program: with the wrapper in its extra source.
        name: of the kernel; its outputs stand behind its other arguments.
        n: work-items.
        *arguments: arrays are uploaded; scalars and records are passed by value.
        out: arrays of the outputs' shapes and dtypes; what they hold is uploaded first.
        group: work-items a group; None: the driver chooses.
    """
    device = program.device
    given = [upload(device, np.ascontiguousarray(a)).buffer if np.ndim(a) else a for a in arguments]
    results = []
    for array in out:
        held = empty(device, array.shape, array.dtype)
        held.write(array)
        results.append(held)
    kernel = program.kernel(name)
    kernel(device.queue, (n,), group and (group,), *given, *(held.buffer for held in results))
    return [held.read() for held in results]


def assert_same_records(expected, seen):
    """Every column of two record arrays is equal; the message lists those that are not."""
    wrong = {
        name: int((expected[name] != seen[name]).sum())
        for name in expected.dtype.names
        if not np.array_equal(expected[name], seen[name])
    }
    assert not wrong, f"values that differ, by column: {wrong}"
    assert expected.shape == seen.shape
