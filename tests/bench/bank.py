"""Skill banks: queries and observations a second of the kernels, beside their NumPy definition.

Before the clock starts both must retrieve the same slots, decide the same, and hold the same banks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from backtest.agent.bank import Bank
from backtest.agent.bank.retrieval import retrieve_rows
from backtest.agent.bank.rough import rough_rows
from backtest.agent.bank.snapshot import Floats
from opencl.bank import DeviceBank
from opencl.buffers import empty, upload
from opencl.devices import Device
from opencl.retrieval import DeviceSnapshots
from tests.bench.roofline import share
from tests.bench.rows import Row, device_seconds, wall_seconds

SLOTS, DIM = 21, 1008  # the task bank of the original network
OTHER_SLOTS = (8, 32, 64)
GPU_BANKS, CPU_BANKS = 132, 4
GPU_QUERIES, CPU_QUERIES = 131_072, 2048
ROWS = 200  # observations of one bank
SAMPLE = 60  # of them that NumPy repeats before the clock starts


def run(device: Device, quick: bool = False) -> list[Row]:
    """Measure one device."""
    gpu = device.kind == "gpu"
    rows = ROWS // 4 if quick else ROWS
    banks = (GPU_BANKS if gpu else CPU_BANKS) // (4 if quick else 1)
    queries = (GPU_QUERIES if gpu else CPU_QUERIES) // (4 if quick else 1)
    return [
        *(_retrieval(device, queries, n) for n in ((SLOTS,) if quick else (SLOTS, *OTHER_SLOTS))),
        *(_updates(device, max(banks, 1), rows, aggregate) for aggregate in (1, 25)),
    ]


def _stream(rows: int, seed: int = 0) -> tuple[Floats, Floats]:
    """Observations without those that a bank refuses, which cost nothing."""
    h, g = rough_rows(rows, DIM, DIM, seed)
    return np.nan_to_num(h), np.where(np.isfinite(g), g, np.float32(0))


def _learned(aggregate: int, slots: int = SLOTS) -> Bank:
    bank = Bank(slots, DIM, similarity_threshold=0.3, aggregate=aggregate, min_confirmations=1)
    bank.update_rows(*_stream(SAMPLE, seed=9))
    bank.close_collection()
    return bank


def _retrieval(device: Device, queries: int, slots: int) -> Row:
    snapshot = _learned(1, slots).snapshot()
    held = DeviceSnapshots(device, [snapshot])
    h = _stream(queries)[0]
    sample = h[:CPU_QUERIES]
    expected = retrieve_rows(snapshot, sample)
    if device.correctly_rounded and not np.array_equal(
        held.retrieve_rows(sample[None])[0], expected
    ):
        raise AssertionError(f"{device.name}: slots differ from NumPy; not timed")
    given, found = upload(device, h[None]), empty(device, (1, queries), np.int32)
    rate = queries / device_seconds(lambda: held.retrieve_into(given, found, timed=True))
    plain = len(sample) / wall_seconds(lambda: retrieve_rows(snapshot, sample), 1)
    return Row(
        f"retrieval, {queries:,} queries, {slots} slots of {DIM:,}",
        rate,
        "queries/s",
        f"{rate * DIM * 4 / 1e9:,.3g} GB/s, {rate * DIM * slots * 2 / 1e9:,.3g} GFLOP/s; "
        f"{rate / plain:,.0f} times NumPy ({plain:,.0f})",
        series="retrieval",
        axis="slots",
        x=slots,
        roofline=share(device, "fp32", rate * DIM * slots * 2),
    )


def _updates(device: Device, banks: int, rows: int, aggregate: int) -> Row:
    new = _learned(aggregate)
    h, g = (np.stack([part] * banks) for part in _stream(rows))
    plain = _check(device, new, h[0, :SAMPLE], g[0, :SAMPLE])
    held = DeviceBank(device, [new] * banks)
    given, residuals = upload(device, h), upload(device, g)
    counts = upload(device, np.full(banks, rows, np.int32))
    results = [empty(device, (banks, rows), np.int32) for _ in range(2)]

    def launch() -> Any:
        return held.update_into(given, residuals, None, counts, *results, timed=True)

    rate = banks * rows / device_seconds(launch)
    return Row(
        f"updates, {banks:,} banks, {SLOTS} slots of {DIM:,}, aggregate {aggregate}",
        rate,
        "observations/s",
        f"{rate / banks:,.0f} a bank, in order; {rate / plain:,.0f} times NumPy ({plain:,.0f})",
    )


def _check(device: Device, new: Bank, h: Floats, g: Floats) -> float:
    """Compare decisions and arrays with NumPy; return its observations a second."""
    held, mine = DeviceBank(device, [new]), DeviceBank(device, [new]).read()[0]
    seen = held.update_rows(h[None], g[None])
    seconds = wall_seconds(lambda: mine.update_rows(h, g), 1)
    mine = DeviceBank(device, [new]).read()[0]
    decision, slot = mine.update_rows(h, g)
    same = np.array_equal(seen[0][0], decision) and np.array_equal(seen[1][0], slot)
    arrays = held.read()[0].state_dict()
    same &= all(np.array_equal(array, arrays[n]) for n, array in mine.state_dict().items())
    if device.correctly_rounded and not same:
        raise AssertionError(f"{device.name}: the bank differs from NumPy; not timed")
    return len(h) / seconds
