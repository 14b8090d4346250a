"""Skill banks on a device: M banks of one shape side by side, each learning its own rows.

The definition is `backtest.agent.bank`; decisions and every buffer are equal to it bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from backtest.agent.bank import ABSTAIN, MISS, Bank, Snapshot
from backtest.agent.bank.state import COUNTERS
from backtest.agent.bank.utility import solo_interval
from opencl.bank_program import CHUNK, bank_program, bank_sizes
from opencl.bank_state import pack, rules_record, unpack
from opencl.buffers import DeviceArray, empty, upload
from opencl.devices import Device
from opencl.retrieval import PART_ROW, DeviceSnapshots, Floats, Ints, by_group, tiles

Array = npt.NDArray[Any]

SCALARS = ("head", "skills", "counters")  # what `skill_judge.cl` works on
LEARNED = (
    "head", "skills", "uses", "keys", "directions", "corrections", "cells", "cell_keys",
    "cell_sum", "counters",
)  # fmt: skip


class DeviceBank:
    """M banks of equal slots, dimensions and parameters; the surface of `Bank` with an axis M.

    `h` are contexts float32[M, ..., K], `g` pseudo-residuals float32[M, ..., D]. Arrays of another
    shape are a ValueError.
    """

    def __init__(self, device: Device, banks: Sequence[Bank]) -> None:
        """Copy the banks to the device; the originals stay as they are.

        Raises:
            ValueError: no bank, or banks of other sizes or parameters than the first.
            DeviceError: the device has no room.
        """
        shapes = {(b.slots, b.key_dim, b.dim, b.section.model_dump_json()) for b in banks}
        if len(shapes) != 1:
            raise ValueError(f"banks of one shape and parameters are needed, not {len(shapes)}")
        self.device = device
        first = banks[0]
        self.slots, self.key_dim, self.dim = first.slots, first.key_dim, first.dim
        self.count = len(banks)
        self._rules = rules_record(first)
        self._program = bank_program(device)
        places = self.slots + int(self._rules["pool"])
        self._sums = 4 * max(2 * places + 2, int(self._rules["cells"]) + 2)
        self._work = [
            empty(device, (self.count, width), np.float32)
            for width in (self.key_dim, self.dim, self.dim)
        ]
        self._load(banks)

    def _load(self, banks: Sequence[Bank]) -> None:
        self._banks = list(banks)  # what the device does not hold: quantiles, parameters
        self._arrays: dict[str, DeviceArray] = {
            name: upload(self.device, array, writable=True) for name, array in pack(banks).items()
        }

    def read(self) -> list[Bank]:
        """Return the banks as they are now, on the host."""
        return unpack({name: held.read() for name, held in self._arrays.items()}, self._banks)

    @property
    def counters(self) -> list[dict[str, int]]:
        """What happened in each bank since it was made or cleared, by name."""
        rows = self._arrays["counters"].read().tolist()
        return [dict(zip(COUNTERS, row, strict=True)) for row in rows]

    def fit_context(self, contexts: Floats, rngs: Sequence[np.random.Generator]) -> None:
        """Fit each bank on its contexts float32[M, n, K] with its own generator; on the host."""
        self._check(contexts, (self.count, contexts.shape[1], self.key_dim), "contexts")
        banks = self.read()
        for bank, rows, rng in zip(banks, contexts, rngs, strict=True):
            bank.fit_context(rows, rng)
        self._load(banks)

    def snapshot(
        self, alpha: float | None = None, explore: bool = False, only: int | None = None
    ) -> list[Snapshot]:
        """Return each bank as a rollout reads it; see `Bank.snapshot`."""
        return [bank.snapshot(alpha, explore, only) for bank in self.read()]

    def retrieve_rows(self, snapshots: Sequence[Snapshot] | DeviceSnapshots, h: Floats) -> Ints:
        """Return int32[M, B]: the slot of each query h float32[M, B, K], MISS or ABSTAIN."""
        if not isinstance(snapshots, DeviceSnapshots):
            snapshots = DeviceSnapshots(self.device, snapshots)
        return snapshots.retrieve_rows(h)

    def retrieve(self, h: Floats, mark: bool = False, explore: bool = False) -> tuple[Ints, Floats]:
        """Return slots int32[M] and corrections float32[M, D], zero without a slot.

        Args:
            h: float32[M, K].
            mark: count uses, misses and abstentions; without it nothing changes.
            explore: add the UCB term.
        """
        self._check(h, (self.count, self.key_dim), "h")
        snapshots = self.snapshot(explore=explore)
        found = self.retrieve_rows(snapshots, h[:, None])[:, 0]
        if mark:
            one = np.arange(self.slots) == found[:, None]
            self.add_uses(one.astype(np.int64), one, found == MISS, found == ABSTAIN)
        shift = np.stack([s.shift[max(slot, 0)] for s, slot in zip(snapshots, found, strict=True)])
        return found, np.where(found[:, None] >= 0, shift, np.float32(0))

    def observe(self, h: Floats) -> Ints:
        """Return what `retrieve` would find for h float32[M, K]; changes nothing."""
        return self.retrieve(h)[0]

    def add_uses(
        self, uses: Array, retrieved: Array, misses: Array | None = None,
        abstentions: Array | None = None,
    ) -> None:  # fmt: skip
        """Enter what rollouts that read snapshots did.

        Args:
            uses: int64[M, N], episode-steps each slot was applied.
            retrieved: bool[M, N], slots applied at all.
            misses: int[M], queries that found no slot; None: 0.
            abstentions: int[M], queries that abstained; None: 0.
        """
        zero = np.zeros(self.count, np.int64)
        given = (
            (uses, (self.count, self.slots), np.int64),
            (retrieved, (self.count, self.slots), np.int32),
            (zero if misses is None else misses, (self.count,), np.int64),
            (zero if abstentions is None else abstentions, (self.count,), np.int64),
        )
        for array, shape, _ in given:
            if array.shape != shape:
                raise ValueError(f"uses of {list(array.shape)}, not {list(shape)}")
        rest = [self._up(array.astype(kind)) for array, _, kind in given]
        self._launch_each("bank_uses", self._arrays["uses"].buffer, *rest)

    def update(self, h: Floats, g: Floats, h_norm: Floats | None = None) -> tuple[Ints, Ints]:
        """Learn from one observation a bank, h float32[M, K]; decisions and slots int32[M]."""
        sizes = None if h_norm is None else h_norm[:, None]
        decision, slot = self.update_rows(h[:, None], g[:, None], sizes)
        return decision[:, 0], slot[:, 0]

    def update_rows(
        self, h: Floats, g: Floats, h_norm: Floats | None = None, counts: Array | None = None
    ) -> tuple[Ints, Ints]:
        """Learn from rows in order, each bank from its own.

        Args:
            h: float32[M, B, K].
            g: float32[M, B, D].
            h_norm: float32[M, B], |hidden state| where h is not the hidden state; None: |h|.
            counts: int[M], rows of each bank that count; None: all.

        Returns:
            Decisions and slots, int32[M, B] each; NONE, -1 behind a bank's count.
        """
        rows = h.shape[1]
        self._check(h, (self.count, rows, self.key_dim), "h")
        self._check(g, (self.count, rows, self.dim), "g")
        if h_norm is not None:
            self._check(h_norm, (self.count, rows), "h_norm")
        counts = np.full(self.count, rows) if counts is None else counts
        decision, slot = np.zeros((2, self.count, rows), np.int32)
        slot[...] = MISS
        for part in tiles(rows, h[:, :1].nbytes + g[:, :1].nbytes):
            size = None if h_norm is None else h_norm[:, part]
            here = np.clip(counts - part.start, 0, part.stop - part.start)
            seen = self._update(h[:, part], g[:, part], size, here)
            inside = np.arange(part.stop - part.start) < here[:, None]
            decision[:, part] = np.where(inside, seen[0], decision[:, part])
            slot[:, part] = np.where(inside, seen[1], slot[:, part])
        return decision, slot

    def _update(
        self, h: Floats, g: Floats, h_norm: Floats | None, counts: Array
    ) -> tuple[Ints, Ints]:
        decision, slot = (empty(self.device, h.shape[:2], np.int32) for _ in range(2))
        size = None if h_norm is None else upload(self.device, h_norm)
        rows = upload(self.device, h), upload(self.device, g), size
        self.update_into(*rows, upload(self.device, counts.astype(np.int32)), decision, slot)
        return decision.read(), slot.read()

    def update_into(
        self, h: DeviceArray, g: DeviceArray, h_norm: DeviceArray | None, counts: DeviceArray,
        decision: DeviceArray, slot: DeviceArray, timed: bool = False,
    ) -> Any:  # fmt: skip
        """As `update_rows` with int32 counts, device to device; returns the event."""
        return self._launch(
            "bank_update", self._arrays["center"].buffer, *(w.buffer for w in self._work),
            *self._local(), h.buffer, g.buffer, None if h_norm is None else h_norm.buffer,
            counts.buffer, np.int32(h.shape[1]), decision.buffer, slot.buffer, timed=timed,
        )  # fmt: skip

    def tick(self) -> None:
        """Advance ages, protections and candidates' clocks by one emitted observation."""
        self._launch("bank_tick", *self._local())

    def update_direction(self, slots: Ints, g: Floats) -> npt.NDArray[np.bool_]:
        """Turn the direction of one live slot a bank (MISS: none) towards g float32[M, D].

        Returns:
            bool[M], whether it turned.
        """
        self._check(g, (self.count, self.dim), "g")
        turned = empty(self.device, self.count, np.int32)
        self._launch(
            "bank_turn", *(w.buffer for w in self._work), *self._local(),
            self._up(self._slots(slots)), self._up(g), turned.buffer,
        )  # fmt: skip
        return turned.read().astype(np.bool_)

    def influence_rows(
        self, snapshots: Sequence[Snapshot], before: Floats, after: Floats, slots: Ints
    ) -> Floats:
        """Return the influence float32[M, B] of applications, 0 without a slot.

        Args:
            snapshots: whose corrections were applied.
            before: float32[M, B, D], g at h.
            after: float32[M, B, D], g at h + d, same action and target.
            slots: int32[M, B].
        """
        for array, name in ((before, "before"), (after, "after")):
            self._check(array, (*slots.shape, self.dim), name)
        shift = self._up(np.stack([s.shift for s in snapshots]))
        result = np.empty(slots.shape, np.float32)
        for part in tiles(slots.shape[1], 2 * before[:, :1].nbytes):
            mine = np.ascontiguousarray(slots[:, part])
            out = empty(self.device, mine.shape, np.float32)
            group = 64 if by_group(self.device) else 1
            self._program.kernel("bank_influence")(
                self.device.queue, (group * mine.size,), (group,), self._rules,
                self._up(before[:, part]), self._up(after[:, part]), shift,
                self._up(mine), np.int32(mine.shape[1]), out.buffer,
            )  # fmt: skip
            result[:, part] = out.read()
        return result

    def add_influence(self, slots: Ints, influence: Floats) -> None:
        """Add the influence of applications [M] or [M, T], in order; slot MISS: none."""
        shape = (self.count, 1, -1)
        self._episodes(slots.reshape(shape), influence.reshape(shape), None)

    def end_episode(self, deltas: Floats) -> None:
        """Move utilities by one paired Delta a bank, float32[M]; clear influence."""
        none = np.full((self.count, 1, 1), MISS, np.int32)
        self._episodes(none, none.astype(np.float32), deltas[:, None])

    def end_episodes(self, slots: Ints, influence: Floats, deltas: Floats) -> None:
        """Whole episodes in order: their applications, then their Delta.

        Args:
            slots: int32[M, E, T], MISS or ABSTAIN: none.
            influence: float32[M, E, T], in the order of steps.
            deltas: float32[M, E].
        """
        self._episodes(slots, influence, deltas)

    def _episodes(self, slots: Ints, influence: Floats, deltas: Floats | None) -> None:
        count, episodes, steps = slots.shape
        self._check(influence, (self.count, episodes, steps), "influence")
        if deltas is not None:
            self._check(deltas, (count, episodes), "deltas")
        self._launch_each(
            "bank_episodes", self._up(self._slots(slots)), self._up(influence),
            None if deltas is None else self._up(deltas), np.int32(episodes), np.int32(steps),
        )  # fmt: skip

    def solo_round(self, deltas: Floats) -> None:
        """Move utilities by one round of solo rollouts, deltas float32[M, N, E].

        A live slot whose 95 % interval lies below zero becomes INACTIVE.
        """
        self._check(deltas, (self.count, self.slots, deltas.shape[-1]), "deltas")
        made = [solo_interval(rows) for rows in deltas]
        mean = np.stack([m for m, _ in made])
        harmful = np.stack([upper < 0 for _, upper in made]).astype(np.int32)
        self._launch_each("bank_solo", self._up(mean), self._up(harmful))

    def close_collection(self) -> None:
        """Revive inactive skills and freeze norm_ref and h_ref; ends COLLECT."""
        self._launch_each("bank_close")

    def reset_influence(self) -> None:
        """Forget the influence of the episodes that run."""
        skills = self._arrays["skills"].read()
        skills["influence"] = 0
        self._arrays["skills"].write(skills)

    def clear(self) -> None:
        """Empty the banks; centre, quantiles and threshold of the contexts stay."""
        banks = self.read()
        for bank in banks:
            bank.clear()
        self._load(banks)

    def _launch(self, name: str, *rest: object, timed: bool = False) -> Any:
        size = bank_sizes(self.device)["ITEMS"]
        queue = self.device.timed_queue if timed else self.device.queue
        buffers = (self._arrays[part].buffer for part in LEARNED)
        return self._program.kernel(name)(
            queue, (size * self.count,), (size,), self._rules, *buffers, *rest
        )

    def _launch_each(self, name: str, *rest: object) -> None:
        buffers = (self._arrays[part].buffer for part in SCALARS)
        self._program.kernel(name)(
            self.device.queue, (self.count,), None, self._rules, *buffers, *rest
        )

    def _local(self) -> tuple[Any, Any, Any]:
        """Local memory of a group: lanes, sums, and the plan, at most 64 bytes."""
        import pyopencl as cl

        sizes = 4 * CHUNK * PART_ROW, self._sums, 64
        return tuple(cl.LocalMemory(size) for size in sizes)

    def _up(self, array: Array) -> Any:
        return upload(self.device, array).buffer

    def _slots(self, slots: Ints) -> Ints:
        if slots.shape[0] != self.count or (slots >= self.slots).any():
            raise ValueError(f"slots {list(slots.shape)}: [{self.count}, ...] below {self.slots}")
        return slots.astype(np.int32)

    def _check(self, array: Array, shape: tuple[int, ...], name: str) -> None:
        if array.shape != shape or array.dtype != np.float32:
            raise ValueError(
                f"{name} is {array.dtype}{list(array.shape)}, not float32{list(shape)}"
            )
