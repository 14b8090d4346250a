"""Snapshots of M banks on a device: batched retrieval, correction and influence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from backtest.agent.bank.snapshot import Snapshot
from opencl.buffers import DeviceArray, empty, upload
from opencl.devices import Device
from opencl.programs import Program

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]

LANES = 64  # of an ordered sum
QUERIES, MOST_SLOTS = 4, 12  # that one group scores together; their sums lie in registers
# Floats between rows of 64 lanes in local memory. One item adds up one row, four floats at a time:
# rows 64 apart would all start in the same bank of a GPU's local memory.
PART_ROW = 68
TILE_BYTES = 2**28  # of one input on the device at a time
FIELDS = ("center", "keys", "norms", "eligible", "bonus", "disagree", "threshold")


def by_group(device: Device) -> bool:
    """Return whether a group shares a sum, one item a lane; else one item adds lanes in vectors."""
    return device.kind == "gpu"


def tiles(rows: int, row_bytes: int) -> Iterator[slice]:
    """Yield slices that cover `rows`, each of at most TILE_BYTES (or one row)."""
    size = max(1, TILE_BYTES // max(row_bytes, 1))
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))


def slot_tile(slots: int) -> int:
    """Return how many slots a group scores at a time: equal parts of at most MOST_SLOTS."""
    return -(-slots // -(-slots // MOST_SLOTS))


@cache
def retrieval_program(device: Device, tile: int) -> Program:
    """Return the compiled kernels of a device, one object for all calls."""
    files = ("skill_score.cl", "skill_search_group.cl", "skill_retrieval.cl")
    return Program(device, files, search_sizes(tile))


def search_sizes(tile: int) -> dict[str, int]:
    """Return the constants of `skill_search_group.cl`."""
    return {"SLOT_TILE": tile, "SUMS": tile + 1, "PART_ROW": PART_ROW}


class DeviceSnapshots:
    """M snapshots of one shape; results equal `backtest.agent.bank.retrieval` bit for bit."""

    def __init__(self, device: Device, snapshots: Sequence[Snapshot]) -> None:
        """Copy to the device.

        Raises:
            ValueError: none, or shapes that differ.
        """
        shapes = {(s.keys.shape, s.shift.shape) for s in snapshots}
        if len(shapes) != 1:
            raise ValueError(f"snapshots of one shape are needed, these have {sorted(shapes)}")
        self.device = device
        self.count = len(snapshots)
        ((self.slots, self.key_dim), (_, self.dim)) = shapes.pop()
        self.group = by_group(device)
        self.program = retrieval_program(device, slot_tile(self.slots))
        arrays = {
            name: np.stack([np.asarray(getattr(s, name)) for s in snapshots])
            for name in (*FIELDS, "shift")
        }
        if self.group:
            arrays["keys"] = lane_blocks(arrays["keys"], slot_tile(self.slots))
        self.arrays: dict[str, DeviceArray] = {n: upload(device, a) for n, a in arrays.items()}

    def retrieve_rows(self, h: Floats) -> Ints:
        """Return int32[M, B]: slot, MISS or ABSTAIN of each query h float32[M, B, K]."""
        self._check(h, self.key_dim, "h")
        result = np.empty(h.shape[:2], np.int32)
        for rows in tiles(h.shape[1], h[:, :1].nbytes):
            found = empty(self.device, result[:, rows].shape, np.int32)
            self.retrieve_into(upload(self.device, h[:, rows]), found)
            result[:, rows] = found.read()
        return result

    def retrieve_into(self, h: DeviceArray, found: DeviceArray, timed: bool = False) -> Any:
        """As `retrieve_rows`, device to device; returns the event."""
        queries = h.shape[1]
        name, size, group = "bank_retrieve_item", self.count * queries, None
        if self.group:
            groups = self.count * -(-queries // QUERIES)
            name, size, group = "bank_retrieve_group", groups * LANES, (LANES,)
        kernel = self.program.kernel(name)
        queue = self.device.timed_queue if timed else self.device.queue
        return kernel(
            queue, (size,), group, *(self.arrays[name].buffer for name in FIELDS), h.buffer,
            np.int32(self.slots), np.int32(self.key_dim), np.int32(queries), found.buffer,
        )  # fmt: skip

    def apply_rows(self, h: Floats, found: Ints) -> Floats:
        """Return hidden states float32[M, B, D] with the corrections of int32[M, B] slots added.

        A select: rows without a slot (MISS, ABSTAIN) come back bit for bit.
        """
        self._check(h, self.dim, "h")
        result = np.empty(h.shape, np.float32)
        for rows in tiles(h.shape[1], h[:, :1].nbytes):
            part = h[:, rows]
            out = empty(self.device, part.shape, np.float32)
            self.program.kernel("bank_gather")(
                self.device.queue, (self.dim, part.shape[0] * part.shape[1]), None,
                upload(self.device, part).buffer, self.arrays["shift"].buffer,
                upload(self.device, found[:, rows].astype(np.int32)).buffer,
                np.int32(self.slots), np.int32(self.dim), np.int32(part.shape[1]), out.buffer,
            )  # fmt: skip
            result[:, rows] = out.read()
        return result

    def _check(self, array: Floats, width: int, name: str) -> None:
        right = array.ndim == 3 and array.shape[0] == self.count and array.shape[2] == width
        if not right or array.dtype != np.float32:
            raise ValueError(
                f"{name} is {array.dtype}{list(array.shape)}, not float32[{self.count}, B, {width}]"
            )


def lane_blocks(keys: Floats, tile: int) -> Floats:
    """Return keys [M, N, K] as [M, N/tile, K/64, tile, 64], rounded up, zeros behind the end."""
    count, slots, dim = keys.shape
    shape = count, -(-slots // tile), tile, -(-dim // LANES), LANES
    wide = np.zeros((count, shape[1] * tile, shape[3] * LANES), np.float32)
    wide[:, :slots, :dim] = keys
    return np.ascontiguousarray(wide.reshape(shape).swapaxes(2, 3))
