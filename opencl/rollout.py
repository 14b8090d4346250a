"""Whole rollouts on a device: policy, exploration and market in one kernel, no host in between.

Two kernels do the same: `rollout_lanes` (CPU, one work-item walks 16 episodes) and
`rollout_group` (GPU, a work-group walks a tile together). A parity test holds them equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from backtest.agent.weights import N_BAR, PolicyWeights
from backtest.errors import DeviceError
from backtest.market.layout import BRANCHES, N_PORTFOLIO, STEP, Array
from backtest.market.tape import Tape
from backtest.market.walk import check_span
from opencl.buffers import DeviceArray, empty, upload
from opencl.devices import Device
from opencl.programs import Program
from opencl.simulate import MARKET_FILES, DeviceTape

LANES = 16  # episodes a work-item on a CPU; the width of float16
TILE = 32  # episodes a work-group on a GPU
BARS_PER_ITEM = 8  # bars a work-item of bar_hidden
POLICY_FILES = (*MARKET_FILES, "portfolio.cl", "explore.cl", "rollout.cl", "bar_hidden.cl")


@dataclass(frozen=True)
class Shape:
    """What a rollout program is specialised to."""

    hidden: tuple[int, int]
    atoms: int
    branches: tuple[str, ...]  # learned ones

    @property
    def learned(self) -> tuple[str, ...]:
        """Learned branches in the order of an action."""
        return tuple(name for name in BRANCHES if name in self.branches)

    @property
    def heads(self) -> Array:
        """Rows of the 13 action heads that belong to learned branches, int[n]."""
        first = dict(zip(BRANCHES, np.cumsum([0, *BRANCHES.values()]), strict=False))
        spans = [np.arange(first[name], first[name] + BRANCHES[name]) for name in self.learned]
        return np.concatenate(spans)


@dataclass(frozen=True)
class Trajectories:
    """What a rollout leaves; n episodes, policy after policy.

    Attributes:
        start: int32[n], decision bar of step 0.
        action: uint8[steps, n, 4].
        reward: float32[steps, n].
        equity: float32[steps, n], currency, at close[b+1].
        end: uint8[steps, n], `End`.
        portfolio: float32[steps + 1, n, 13], or None when not asked for.
        trace: `StepResult` records [steps, n], or None when not asked for.
        values: float32[steps, n, heads], the learned branches' action values, or None.
    """

    start: Array
    action: Array
    reward: Array
    equity: Array
    end: Array
    portfolio: Array | None
    trace: Array | None
    values: Array | None


@dataclass(frozen=True)
class Launch:
    """A rollout that was enqueued; its outputs lie on the device until they are read.

    Attributes:
        event: of the rollout kernel; with times when it was launched as timed.
        start: int[n], decision bar of step 0.
    """

    event: Any
    start: Array
    action: DeviceArray
    reward: DeviceArray
    equity: DeviceArray
    end: DeviceArray
    portfolio: DeviceArray | None
    trace: DeviceArray | None
    values: DeviceArray | None

    def read(self) -> Trajectories:
        """Wait for the kernel and copy everything to the host."""
        self.event.wait()
        return Trajectories(
            start=self.start.astype(np.int32),
            action=self.action.read(),
            reward=self.reward.read(),
            equity=self.equity.read(),
            end=self.end.read(),
            portfolio=None if self.portfolio is None else self.portfolio.read().swapaxes(1, 2),
            trace=None if self.trace is None else self.trace.read(),
            values=None if self.values is None else self.values.read(),
        )


Variant = Literal["auto", "lanes", "group"]


@cache
def rollout_program(device: Device, shape: Shape, variant: Variant = "auto") -> RolloutProgram:
    """Return the compiled rollout of a device and network shape, one object for all calls."""
    return RolloutProgram(device, shape, variant)


class RolloutProgram:
    """One kernel of `rollout_*.cl` with the weight layout it reads."""

    def __init__(self, device: Device, shape: Shape, variant: Variant) -> None:
        """Compile.

        Raises:
            DeviceError: the network does not fit the device's local memory.
        """
        self.device, self.shape = device, shape
        self.group = variant == "group" or (variant == "auto" and device.kind == "gpu")
        self.head = 64 * -(-shape.atoms // 64) if self.group else 4 * -(-shape.atoms // 4)
        self.width = 4 * -(-shape.hidden[1] // 4)  # dense_lanes writes four outputs at a time
        self.items = max(128, self.head) if self.group else 1
        if self.group and self.items % self.head:
            self.items = self.head
        self.tile = self._tile() if self.group else LANES
        sizes = {
            "HIDDEN1": shape.hidden[0],
            "HIDDEN2": self.width,
            "ATOMS": shape.atoms,
            "HEAD": self.head,
            "N_HEADS": len(shape.heads),
            "N_BAR_PART": N_BAR,
            "BARS_PER_ITEM": BARS_PER_ITEM,
            **{f"LEARNS_{name.upper()}": int(name in shape.learned) for name in BRANCHES},
        }
        if self.group:
            rows = max(shape.hidden[0], self.items)
            sizes |= {"GROUP": self.items, "TILE": self.tile, "ROW": self.tile + 4}
            sizes |= {"LOGIT_ROWS": rows}
        else:
            sizes |= {"LANES": LANES}
        name = "rollout_group" if self.group else "rollout_lanes"
        self.program = Program(device, (*POLICY_FILES, f"{name}.cl"), sizes)
        self.kernel = self.program.kernel(name)

    def _tile(self) -> int:
        h1, h2 = self.shape.hidden[0], self.width
        rows = max(h1, self.items) + h2 + N_PORTFOLIO + len(self.shape.heads)
        for tile in (TILE, 16, 8, 4):
            if rows * (tile + 4) * 4 <= self.device.local_memory:
                return tile
        raise DeviceError(
            f"{self.device.name}: hidden layers {h1}, {h2} need {rows * 32} bytes of local memory, "
            f"there are {self.device.local_memory}; use a smaller network.hidden or device = cpu"
        )

    def pack(self, policies: Sequence[PolicyWeights]) -> Mapping[str, Array]:
        """Return the weights of all policies in the order this kernel reads, float32.

        Raises:
            ValueError: a policy has another shape than the program.
        """
        heads, head, atoms = self.shape.heads, self.head, self.shape.atoms
        h1, h2 = self.shape.hidden
        packed: dict[str, list[Array]] = {
            name: [] for name in ("w1_bar", "b1", "w1", "w2", "b2", "w3", "b3", "z")
        }
        for w in policies:
            if (w.hidden, w.atoms) != (self.shape.hidden, atoms):
                raise ValueError(
                    f"a policy of hidden {w.hidden} and {w.atoms} atoms in a rollout of "
                    f"{self.shape.hidden} and {atoms}"
                )
            w2 = np.zeros((self.width, h1), np.float32)
            b2 = np.zeros(self.width, np.float32)
            w2[:h2], b2[:h2] = w.W2, w.b2
            w3 = np.zeros((len(heads), head, self.width), np.float32)
            b3 = np.zeros((len(heads), head), np.float32)
            w3[:, :atoms, :h2] = w.W_head.reshape(-1, atoms, h2)[heads]
            b3[:, :atoms] = w.b_head.reshape(-1, atoms)[heads]
            rows = w3.reshape(-1, self.width)
            packed["w1_bar"].append(w.W1_bar.T)
            packed["b1"].append(w.b1)
            packed["w1"].append(w.W1_portfolio.T if self.group else w.W1_portfolio)
            packed["w2"].append(w2.T if self.group else w2)
            packed["b2"].append(b2)
            packed["w3"].append(rows.T if self.group else rows)
            packed["b3"].append(b3)
            packed["z"].append(w.z)
        return {name: np.stack(arrays).astype(np.float32) for name, arrays in packed.items()}


class Rollout:
    """A tape and its bar states on a device, ready for many rollouts."""

    def __init__(
        self,
        device: Device,
        tape: Tape,
        bar_part: Array,
        shape: Shape,
        variant: Variant = "auto",
    ) -> None:
        """Copy the tape and the bars' part of the state.

        Args:
            device: of `devices.select`.
            tape: bars [start, stop) and parameters.
            bar_part: float32[n, 115], the state's `BAR_SLOTS` of the same bars.
            shape: the network's.
            variant: which kernel; auto takes the device's own.
        """
        if len(bar_part) != len(tape.bars):
            raise ValueError(f"{len(bar_part)} states for {len(tape.bars)} bars")
        self.device, self.tape = device, tape
        self.made = rollout_program(device, shape, variant)
        self.rows = DeviceTape(device, tape)
        self.x = upload(device, np.ascontiguousarray(bar_part, np.float32))

    def run(
        self,
        policies: Sequence[PolicyWeights],
        start: Array,
        steps: int,
        keys: Array,
        *,
        stage_round: int,
        epsilon: float = 0.0,
        portfolio: bool = False,
        trace: bool = False,
        values: bool = False,
    ) -> Trajectories:
        """Walk the same number of episodes under each policy; arguments as for `launch`."""
        return self.launch(
            policies,
            start,
            steps,
            keys,
            stage_round=stage_round,
            epsilon=epsilon,
            portfolio=portfolio,
            trace=trace,
            values=values,
        ).read()

    def launch(
        self,
        policies: Sequence[PolicyWeights],
        start: Array,
        steps: int,
        keys: Array,
        *,
        stage_round: int,
        epsilon: float = 0.0,
        portfolio: bool = False,
        trace: bool = False,
        values: bool = False,
        timed: bool = False,
    ) -> Launch:
        """Enqueue a walk of the same number of episodes under each policy.

        Args:
            policies: P of them, of one shape.
            start: int[P, E], decision bar of step 0.
            steps: T; start + T must lie on the tape.
            keys: uint32[P, 2], random keys (`backtest.rng.key`).
            stage_round: counter word 0 (`backtest.rng.stream`).
            epsilon: probability of a random action, per learned branch.
            portfolio: return the portfolio states.
            trace: return every `StepResult`.
            values: return the action values.
            timed: use the queue whose events carry times.

        Raises:
            IndexError: an episode leaves the tape.
            ValueError: counts or shapes of policies, keys and starts differ.
            DeviceError: the device has no room.
        """
        check_span(self.tape, np.asarray(start).ravel(), steps)
        count, each = start.shape
        if len(policies) != count or keys.shape != (count, 2):
            raise ValueError(
                f"{len(policies)} policies and keys {keys.shape} for starts {start.shape}"
            )
        n, device, made = count * each, self.device, self.made
        queue = device.timed_queue if timed else device.queue
        packed = made.pack(policies)
        w = {name: upload(device, array) for name, array in packed.items()}
        hidden = self._hidden(queue, count, w)
        begin = upload(device, np.ascontiguousarray(start.ravel(), np.int32))
        key = upload(device, np.ascontiguousarray(keys, np.uint32))
        action = empty(device, (steps, n, 4), np.uint8)
        reward = empty(device, (steps, n), np.float32)
        equity = empty(device, (steps, n), np.float32)
        end = empty(device, (steps, n), np.uint8)
        states = self._optional(portfolio, (steps + 1, N_PORTFOLIO, n), np.dtype(np.float32))
        results = self._optional(trace, (steps, n), STEP.dtype)
        heads = len(made.shape.heads)
        q = self._optional(values, (steps, n, heads), np.dtype(np.float32))
        tiles = count * -(-each // made.tile)
        event = made.kernel(
            queue,
            (tiles * made.items,),
            (made.items,),
            *self.rows.arguments,
            hidden.buffer,
            *(w[name].buffer for name in ("w1", "w2", "b2", "w3", "b3", "z")),
            key.buffer,
            begin.buffer,
            *(array.buffer for array in (action, reward, equity, end)),
            *(None if array is None else array.buffer for array in (states, results, q)),
            *(np.int32(i) for i in (self.tape.start, len(self.tape.bars), n, each, steps)),
            np.float32(epsilon),
            np.uint32(stage_round),
        )
        return Launch(event, start.ravel(), action, reward, equity, end, states, results, q)

    def _hidden(self, queue: Any, policies: int, w: Mapping[str, DeviceArray]) -> DeviceArray:
        h1, bars = self.made.shape.hidden[0], len(self.tape.bars)
        hidden = empty(self.device, (policies, bars, h1), np.float32)
        self.made.program.kernel("bar_hidden")(
            queue,
            (h1, -(-bars // BARS_PER_ITEM), policies),
            None,
            self.x.buffer,
            w["w1_bar"].buffer,
            w["b1"].buffer,
            hidden.buffer,
            np.int32(bars),
        )
        return hidden

    def _optional(
        self, wanted: bool, shape: tuple[int, ...], dtype: np.dtype[np.generic]
    ) -> DeviceArray | None:
        return empty(self.device, shape, dtype) if wanted else None
