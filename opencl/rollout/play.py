"""Whole rollouts on a device: policy, exploration and market in one kernel, no host in between.

What depends on the bar alone lies in tables (`opencl.rollout.tables`), filled before the walk for a
stretch of bars that fits the budget; `opencl.rollout.passes` says who walks on which stretch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, cast

import numpy as np

from backtest.agent.bank.snapshot import Snapshot
from backtest.agent.kinds import Weights
from backtest.agent.scenario_weights import ScenarioWeights
from backtest.agent.weights import PolicyWeights
from backtest.errors import DeviceError
from backtest.market.layout import PART, STATE, Array
from backtest.market.tape import Tape
from backtest.market.walk import check_span
from opencl.buffers import DeviceArray, empty, upload
from opencl.devices import Device
from opencl.exchange import Exchange, exchange
from opencl.market import MarketRules
from opencl.memory import Planned
from opencl.rollout.outputs import carried, forms, size
from opencl.rollout.packing import distinct, pack
from opencl.rollout.passes import Pass, passes
from opencl.rollout.program import RolloutProgram, Variant, rollout_program
from opencl.rollout.scenario_tables import Forecasts, ScenarioTables
from opencl.rollout.shape import Shape
from opencl.rollout.skills import PolicySkills, task_banks
from opencl.rollout.tables import MlpTables, Tables
from opencl.rollout.trajectories import Launch, Trajectories
from opencl.simulate import DeviceTape

BUDGET_SHARE = 8  # of a device's memory, one part is for bar tables
# Kernel arguments behind the tables, in order; what a launch lacks is a null pointer.
ARGUMENTS = (
    *("query", "w1", "b1", "w2", "b2", "w3", "b3", "z", "alpha"),
    *("bank_keys", "center", "entries", "disagree", "shift", "guess", "parts", "keys"),
    *("episodes", "start", "action", "reward", "equity", "end"),
    *("portfolio", "trace", "values", "slots", "memory", "living", "history"),
)


class Rollout:
    """A tape and its bar states on a device, ready for many rollouts.

    One thread at a time: kernels, and forecasts kept between launches, are shared.
    """

    def __init__(
        self,
        device: Device,
        tape: Tape,
        bar_part: Array,
        shape: Shape,
        variant: Variant = "auto",
        budget: int | None = None,
    ) -> None:
        """Copy the tape and the bars' part of the state.

        Args:
            device: of `devices.select`.
            tape: bars [start, stop) and parameters.
            bar_part: float32[n, 115], the state's `BAR_SLOTS` of the same bars.
            shape: the network's.
            variant: which kernel; auto takes the device's own.
            budget: bytes for bar tables and their scratch; None: an eighth of the device's memory.
        """
        if len(bar_part) != len(tape.bars):
            raise ValueError(f"{len(bar_part)} states for {len(tape.bars)} bars")
        self.device, self.tape = device, tape
        self.made = rollout_program(device, shape, MarketRules.of(tape.params), variant)
        self.variant = variant
        self.rows = DeviceTape(device, tape)
        self.x = upload(device, np.ascontiguousarray(bar_part, np.float32))
        self.budget = device.global_memory // BUDGET_SHARE if budget is None else budget
        self.forecasts = Forecasts(self.made, self.x)
        self._queue: Any = None

    def as_variant(self, variant: Variant) -> Rollout:
        """Return a rollout of the same bars by another kernel; both share what is uploaded."""
        made = rollout_program(
            self.device, self.made.shape, MarketRules.of(self.tape.params), variant
        )
        if made is self.made:
            return self
        other = copy(self)
        other.made, other.variant = made, variant
        other.forecasts = Forecasts(other.made, self.x)
        return other

    def run(
        self,
        policies: Sequence[Weights],
        start: Array,
        steps: int | Array,
        keys: Array,
        *,
        stage_round: int,
        epsilon: float = 0.0,
        base: Array | None = None,
        portfolio: bool = False,
        trace: bool = False,
        values: bool = False,
        skills: Sequence[PolicySkills | None] | None = None,
        slots: bool = False,
    ) -> Trajectories:
        """Walk the same number of episodes under each policy; arguments as for `launch`."""
        return self.launch(
            policies,
            start,
            steps,
            keys,
            stage_round=stage_round,
            epsilon=epsilon,
            base=base,
            portfolio=portfolio,
            trace=trace,
            values=values,
            skills=skills,
            slots=slots,
        ).read()

    def launch(
        self,
        policies: Sequence[Weights],
        start: Array,
        steps: int | Array,
        keys: Array,
        *,
        stage_round: int,
        epsilon: float = 0.0,
        base: Array | None = None,
        portfolio: bool = False,
        trace: bool = False,
        values: bool = False,
        skills: Sequence[PolicySkills | None] | None = None,
        slots: bool = False,
        timed: bool = False,
        to: Exchange | None = None,
    ) -> Launch:
        """Enqueue a walk of the same number of episodes under each policy.

        Args:
            policies: P of them, of one shape; the same object several times is uploaded once.
            start: int[P, E], decision bar of step 0.
            steps: T, or int[P] for the episodes of each policy: T is the most, and rows after an
                episode's own are DEAD; start + T must lie on the tape.
            keys: uint32[P, 2], random keys (`backtest.rng.key`).
            stage_round: counter word 0 (`backtest.rng.stream`).
            epsilon: probability of a random action, per learned branch.
            base: float32[P], points, of the bars that each policy walks; None: the tape's.
            portfolio: return the portfolio states.
            trace: return every `StepResult`.
            values: return the action values.
            skills: banks of each policy, of the scenario network; None: no policy has any.
            slots: return what the banks retrieved.
            timed: use the queue whose events carry times.
            to: the learner's way to the outputs; None: they are read as NumPy arrays.

        Raises:
            IndexError: an episode leaves the tape.
            ValueError: counts or shapes of policies, keys, starts and banks differ.
            DeviceError: the device has no room, or a bar's tables exceed the budget.
        """
        count, each = start.shape
        if len(policies) != count or keys.shape != (count, 2):
            raise ValueError(
                f"{len(policies)} policies and keys {keys.shape} for starts {start.shape}"
            )
        parts = np.zeros(count, PART.dtype)
        parts["steps"] = steps
        parts["base"] = self.tape.params["base"] if base is None else base
        steps = int(parts["steps"].max())
        check_span(self.tape, np.asarray(start).ravel(), steps)
        skills = [None] * count if skills is None else skills
        if len(skills) != count:
            raise ValueError(f"skills of {len(skills)} policies for {count}")
        if self.made.shape.kind == "mlp" and any(skills):
            raise ValueError("skills extend the scenario network; this rollout plays kind mlp")
        made, queue, n = self._made(count * each), self._in_order(timed), count * each
        first, weights_of = distinct(policies)
        own = [policies[i] for i in first]
        arrays: dict[str, Array] = dict(pack(made.sizes, own))
        banks, bank_of = task_banks(made.sizes, policies, skills)
        tables = self._tables(own, weights_of, [s.step if s is not None else None for s in skills])
        parts["weights"], parts["table"], parts["bank"] = weights_of, tables.table_of, bank_of
        origin = np.full(max(tables.table_of) + 1, self.tape.stop)
        np.minimum.at(origin, tables.table_of, start.min(axis=1))
        parts["origin"] = origin[tables.table_of]
        arrays |= banks | {"parts": parts, "keys": keys.astype(np.uint32)}
        arrays["start"] = start.ravel().astype(np.int32)
        optional = {"portfolio": portfolio, "trace": trace, "values": values, "slots": slots}
        asked = {name for name, wanted in optional.items() if wanted}
        wanted = forms(steps, n, len(made.shape.heads), asked)
        behind = start - parts["origin"][:, None]
        todo, bars = self._plan(tables, behind, steps, made.sizes.tile)
        cut = any(part.stop_step < steps for part in todo)
        planned = Planned(
            {
                "bars": self.rows.nbytes,
                "states": self.x.nbytes,
                "policies": sum(array.nbytes for array in arrays.values()),
                "tables": bars * tables.bar_bytes,
                "outputs": size(wanted),
                "episodes": carried(made.sizes, n, max(len(p.episodes) for p in todo), cut),
            }
        )
        planned.check(self.device, "use fewer episodes or shorter ones")
        given = {name: upload(self.device, array) for name, array in arrays.items()}
        to = exchange(self.device) if to is None else to
        out = {name: to.empty(*form) for name, form in wanted.items()}
        held = {**given, **out}
        walk = _Walk(self, made, queue, tables, held, origin, n, each, steps, epsilon, stage_round)
        tables.allocate(max(part.bars for part in todo), self._whole(tables))
        to.begin(queue, out.values())
        for part in todo:
            walk.enqueue(part, cut)
        return Launch(to, queue, walk.events, walk.bar_events, planned, start.ravel(), out)

    def _made(self, n: int) -> RolloutProgram:
        """Return the program for n episodes: with smaller tiles where a GPU would not be full."""
        sizes = self.made.sizes
        tile, together = sizes.tiling(n, self.device.compute_units)
        if self.device.kind == "cpu" or (tile, together) == (sizes.tile, sizes.together):
            return self.made
        rules = MarketRules.of(self.tape.params)
        return rollout_program(self.device, self.made.shape, rules, self.variant, tile, together)

    def _in_order(self, timed: bool) -> Any:
        """Return the queue; what the other one still does with the kept forecasts comes first."""
        queue = self.device.timed_queue if timed else self.device.queue
        if self._queue is not None and self._queue is not queue:
            self._queue.finish()
        self._queue = queue
        return queue

    def _tables(
        self, own: Sequence[Weights], weights_of: list[int], steps: Sequence[Snapshot | None]
    ) -> Tables:
        """Return the tables of distinct policies `own`; step banks are per launched policy."""
        if self.made.shape.kind == "mlp":
            return MlpTables(self.made, self.x, cast("list[PolicyWeights]", own), weights_of)
        weights = [cast("ScenarioWeights", own[i]) for i in weights_of]
        return ScenarioTables(self.made, self.x, self.forecasts, weights, steps)

    def _most(self, tables: Tables) -> int:
        """Return how many bars fit the budget and one buffer."""
        largest = int(self.device.handle.max_mem_alloc_size) // tables.largest
        return min(self.budget // tables.bar_bytes, largest)

    def _whole(self, tables: Tables) -> int:
        """Return the bars of the tape if all of them fit, else 0."""
        bars = len(self.tape.bars)
        return bars if bars <= self._most(tables) else 0

    def _plan(self, tables: Tables, start: Array, steps: int, tile: int) -> tuple[list[Pass], int]:
        """Return the passes of a walk and the bars that its tables hold.

        Raises:
            DeviceError: not one bar fits the budget.
        """
        most = self._most(tables)
        if most < 1:
            raise DeviceError(
                f"{self.device.name}: the tables of one bar take {tables.bar_bytes} bytes, the "
                f"budget is {self.budget}; use fewer policies a launch, a smaller network, or a "
                "larger budget"
            )
        todo = list(passes(start, steps, most, tile))
        return todo, max(self._whole(tables), *(part.bars for part in todo))


class _Walk:
    """One launch: the kernel's arguments, and what passes hand on to each other."""

    def __init__(
        self,
        rollout: Rollout,
        made: RolloutProgram,
        queue: Any,
        tables: Tables,
        arrays: Mapping[str, DeviceArray],
        origin: Array,
        n: int,
        each: int,
        steps: int,
        epsilon: float,
        stage_round: int,
    ) -> None:
        self.rollout, self.made, self.queue = rollout, made, queue
        self.tables, self.arrays = tables, arrays
        self.rows = origin - rollout.tape.start  # of the tape, that tables count from
        self.counts = (n, each, steps)
        self.chance = (np.float32(epsilon), np.uint32(stage_round))
        self.events: list[Any] = []
        self.bar_events: list[Any] = []
        self.group = -1
        self.carried: dict[str, DeviceArray] = {}

    def enqueue(self, part: Pass, cut: bool) -> None:
        """Enqueue a pass: its tables, then its steps.

        Args:
            part: after the passes of its group before it.
            cut: groups have more than one pass, so states are kept between them.
        """
        rollout, made, sizes = self.rollout, self.made, self.made.sizes
        n, tape = self.counts[0], rollout.tape
        self.bar_events += self.tables.fill(
            self.queue, (self.rows + part.first_bar).tolist(), part.bars
        )
        tiles = len(part.episodes)
        if part.group != self.group:
            self.group = part.group
            self.carried = {"episodes": upload(made.device, part.episodes)}
            if cut:
                self.carried["memory"] = empty(made.device, n, STATE.dtype)
                self.carried["living"] = empty(made.device, n, np.uint8)
            if sizes.past and (cut or sizes.group):
                history = (tiles, sizes.past, sizes.tile)
                self.carried["history"] = empty(made.device, history, np.float32)
        arrays = {**self.arrays, **self.carried}
        table, found = self.tables.buffers
        event = made.kernel(
            self.queue,
            (tiles * sizes.items,),
            (sizes.items,),
            *rollout.rows.arguments,
            rollout.x.buffer,
            table,
            found,
            *(arrays[name].buffer if name in arrays else None for name in ARGUMENTS),
            *(np.int32(i) for i in (tape.start, part.first_bar, part.bars)),
            *(np.int32(i) for i in (*self.counts, part.first_step, part.stop_step)),
            *self.chance,
        )
        self.events.append(event)
