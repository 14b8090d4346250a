"""Bar tables of the scenario network: tokens, calendar queries and scenario weights of each bar.

A table belongs to weights and to the step bank that corrected it. Forecasts come first; they belong
to the frozen forecaster, so policies that share one share them, and so do later launches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from backtest.agent.bank.snapshot import MISS, Snapshot
from backtest.agent.scenario_layout import CALENDAR
from backtest.agent.scenario_weights import NORM_EPS, ScenarioWeights
from backtest.agent.weights import N_BAR
from opencl.buffers import DeviceArray, empty, upload
from opencl.retrieval import QUERIES
from opencl.rollout.program import RolloutProgram
from opencl.rollout.sizes import MMA, SUM_LANES, Sizes, up
from opencl.rollout.skills import step_bank
from opencl.rollout.tables import FLOAT, Layer, dense


class Forecasts:
    """Latents of the forecaster used last, for a stretch of bars of one tape."""

    def __init__(self, made: RolloutProgram, x: DeviceArray) -> None:
        """Nothing is computed yet."""
        self.made, self.x = made, x
        self.clear()

    def clear(self) -> None:
        """Forget the forecasts and give their memory back."""
        self.of, self.first, self.bars, self.room = b"", 0, 0, (0, 0)
        self.hidden: list[DeviceArray] = []
        self.latent: DeviceArray | None = None

    def allocate(self, bars: int, width: int) -> None:
        """Make room for this many bars and hidden neurons, if there is not yet.

        What was computed is forgotten only when the room is not enough.
        """
        if self.room[0] >= bars and self.room[1] >= width:
            return
        self.clear()
        device, shape = self.made.device, self.made.shape
        self.hidden = [empty(device, (bars, width), np.float32) for _ in range(2)]
        self.latent = empty(device, (bars, shape.step_dim), np.float32)
        self.room = (bars, width)

    def compute(self, queue: Any, forecaster: _Forecaster, first: int, bars: int) -> list[Any]:
        """Enqueue forecasts of bars [first, first + bars), unless they are there; return events."""
        known = self.of == forecaster.digest and self.first <= first
        if known and first + bars <= self.first + self.bars:
            return []
        self.of, self.first, self.bars = forecaster.digest, first, bars
        one, two, latent = forecaster.layers
        a, b = self.hidden
        assert self.latent is not None
        return [
            dense(self.made, queue, self.x, one, a, bars, first=first, stride=N_BAR),
            self._normalise(queue, a, bars, one),
            dense(self.made, queue, a, two, b, bars),
            self._normalise(queue, b, bars, two),
            dense(self.made, queue, b, latent, self.latent, bars),
        ]

    def _normalise(self, queue: Any, hidden: DeviceArray, bars: int, layer: Layer) -> Any:
        """Enqueue `bar_norm` on what a layer left and return its event."""
        sizes = np.int32(bars), np.int32(layer.shape[1])
        return self.made.program.kernel("bar_norm")(
            queue, *self.made.over(bars), hidden.buffer, *sizes, NORM_EPS
        )


@dataclass(frozen=True)
class _Forecaster:
    digest: bytes
    layers: tuple[Layer, Layer, Layer]
    share: Layer


@dataclass(frozen=True)
class _Weights:
    """What one policy's tables are made with."""

    forecaster: _Forecaster
    calendar: tuple[DeviceArray, DeviceArray]  # [6, S*L], [S*L]
    project: Layer  # Wz and bz: a latent's step context
    sums: Layer  # the same with Wu logU + bu: what is normalised
    norm: DeviceArray  # [2, L], weight and bias
    position: DeviceArray  # [H, L]


def _forecaster(
    made: RolloutProgram, w: ScenarioWeights, known: dict[bytes, _Forecaster]
) -> _Forecaster:
    """Upload a forecaster, unless one of the same numbers is known."""
    pairs = (w.F1, w.bf1), (w.F2, w.bf2), (w.F_latent, w.bf_latent), (w.F_scenario, w.bf_scenario)
    total = blake2b(digest_size=16)
    for array in (array for pair in pairs for array in pair):
        total.update(array.tobytes())
    digest = total.digest()
    if digest not in known:
        one, two, latent, share = (Layer.up(made.device, *pair) for pair in pairs)
        known[digest] = _Forecaster(digest, (one, two, latent), share)
    return known[digest]


def _weights(made: RolloutProgram, w: ScenarioWeights, known: dict[bytes, _Forecaster]) -> _Weights:
    # logU is linear in the latent, so is what it adds to the step context
    per_latent = np.outer(w.Wu, w.F_log_u.astype(np.float64))
    bias = w.bz + w.Wu * w.bf_log_u.astype(np.float64) + w.bu
    return _Weights(
        forecaster=_forecaster(made, w, known),
        calendar=(upload(made.device, w.Wq_calendar.T), upload(made.device, w.bq_calendar)),
        project=Layer.up(made.device, w.Wz, w.bz),
        sums=Layer.up(made.device, w.Wz + per_latent, bias),
        norm=upload(made.device, np.stack([w.norm_w, w.norm_b])),
        position=upload(made.device, w.pe),
    )


@dataclass(frozen=True)
class _Table:
    weights: _Weights
    bank: dict[str, DeviceArray] | None
    key_dim: int


def bytes_of_a_bar(sizes: Sizes, tables: int, width: int) -> int:
    """Return what a bar takes in so many tables, with forecasts of a forecaster of this width."""
    scratch = sizes.shape.step_dim + 2 * width
    return tables * (sizes.bar_row * FLOAT + 1) + scratch * FLOAT


class ScenarioTables:
    """Tables of distinct pairs of weights and step bank."""

    def __init__(
        self,
        made: RolloutProgram,
        x: DeviceArray,
        forecasts: Forecasts,
        policies: Sequence[ScenarioWeights],
        steps: Sequence[Snapshot | None],
    ) -> None:
        """Upload what the tables need.

        Args:
            made: holds the kernels.
            x: float32[bars, 115] of the tape.
            forecasts: kept between launches.
            policies: one a launched policy; equal objects share.
            steps: the step bank of each, or None.

        Raises:
            ValueError: a bank does not fit.
        """
        self.made, self.x, self.forecasts = made, x, forecasts
        self.column = upload(made.device, np.array(CALENDAR, np.int32))
        places: dict[tuple[int, int], int] = {}
        self.table_of: Sequence[int] = [
            places.setdefault((id(w), id(step)), len(places))
            for w, step in zip(policies, steps, strict=True)
        ]
        first = [self.table_of.index(i) for i in range(len(places))]
        known: dict[bytes, _Forecaster] = {}
        weights: dict[int, _Weights] = {}
        banks: dict[int, dict[str, DeviceArray]] = {}
        self.tables = []
        for w, step in ((policies[i], steps[i]) for i in first):
            if id(w) not in weights:
                weights[id(w)] = _weights(made, w, known)
            if step is not None and id(step) not in banks:
                arrays = step_bank(made.sizes, step, N_BAR)
                banks[id(step)] = {k: upload(made.device, v) for k, v in arrays.items()}
            key_dim = 0 if step is None else step.keys.shape[1]
            self.tables.append(_Table(weights[id(w)], banks.get(id(step)), key_dim))
        # a forecaster's tables in a row, so that it runs once a stretch
        self.order = sorted(
            range(len(first)), key=lambda i: self.tables[i].weights.forecaster.digest
        )
        self.width = max(table.weights.forecaster.layers[0].shape[1] for table in self.tables)
        latent = made.shape.step_dim * FLOAT
        self.bar_bytes = bytes_of_a_bar(made.sizes, len(first), self.width)
        self.largest = max(len(first) * made.sizes.bar_row * FLOAT, latent)

    def allocate(self, bars: int, whole: int) -> None:
        """Make room for this many bars, and for forecasts of the whole tape unless `whole` is 0."""
        shape = (len(self.tables), bars)
        self.table = empty(self.made.device, (*shape, self.made.sizes.bar_row), np.float32)
        banks = any(table.bank is not None for table in self.tables)
        self.found = empty(self.made.device, shape, np.int8) if banks else None
        # forecasts of the whole tape outlast the launch, those of one forecaster
        alone = len({table.weights.forecaster.digest for table in self.tables}) == 1
        self.whole = whole if alone else 0
        self.forecasts.allocate(self.whole or bars, self.width)

    def fill(self, queue: Any, first: Sequence[int], bars: int) -> list[Any]:
        """Enqueue forecasts, then every table."""
        import pyopencl as cl

        if self.found is not None:  # for tables without a bank
            size = len(self.tables) * bars
            cl.enqueue_fill_buffer(queue, self.found.buffer, np.int8(MISS), 0, size)
        events: list[Any] = []
        for i in self.order:
            at = first[i]
            rows = min(bars, self.x.shape[0] - at)
            if rows <= 0:
                continue
            stretch = (0, self.whole) if self.whole else (at, rows)
            forecaster = self.tables[i].weights.forecaster
            events += self.forecasts.compute(queue, forecaster, *stretch)
            events += self._fill(queue, self.tables[i], at, i * bars, rows)
        return events

    def _fill(self, queue: Any, table: _Table, first: int, row: int, bars: int) -> list[Any]:
        """Enqueue one table: rows [row, row + bars) of all tables' buffer."""
        made, shape, weights = self.made, self.made.shape, table.weights
        kernel, out = made.program.kernel, self.table
        hidden, latent = self.forecasts.hidden[1], self.forecasts.latent
        assert latent is not None
        inside = first - self.forecasts.first
        tokens = shape.scenarios * shape.horizon

        def layer(x: DeviceArray, layer: Layer, parts: int, at: int) -> Any:
            return dense(
                made, queue, x, layer, out, bars * parts,
                first=inside * parts, parts=parts, first_out=row,
                out_stride=made.sizes.bar_row, at=at,
            )  # fmt: skip

        events = [
            layer(hidden, weights.forecaster.share, 1, made.sizes.share_at),
            kernel("bar_share")(queue, *made.over(bars), out.buffer, np.int32(row), np.int32(bars)),
            kernel("bar_calendar")(
                queue,
                *made.across(shape.scenarios * shape.latent, bars),
                *(a.buffer for a in (self.x, self.column, *weights.calendar, out)),
                *(np.int32(i) for i in (first, row, bars)),
            ),
        ]
        found, shift = None, None
        if table.bank is not None and self.found is not None:
            found, shift = self.found.buffer, table.bank["shift"].buffer
            events += self._search(queue, table, first, row, bars, layer)
        sizes = np.int32(row), np.int32(bars), NORM_EPS
        normal = (weights.norm.buffer, weights.position.buffer, found, shift, out.buffer)
        if made.sizes.group:
            layers = (latent, weights.sums.weight, weights.sums.bias)
            each = MMA if made.sizes.tensor else shape.horizon
            tokens = kernel("bar_tokens")(
                queue,
                *made.over(shape.scenarios * each * bars),
                *(array.buffer for array in layers),
                *normal,
                np.int32(inside),
                *sizes,
            )
            return [*events, tokens]
        events.append(layer(latent, weights.sums, tokens, 0))
        places = made.across(tokens, bars)
        return [*events, kernel("bar_tokens")(queue, *places, *normal, *sizes)]

    def _search(
        self,
        queue: Any,
        table: _Table,
        first: int,
        row: int,
        bars: int,
        layer: Callable[[DeviceArray, Layer, int, int], Any],
    ) -> list[Any]:
        """Enqueue a step bank's search, by step contexts (in the place of tokens) or features."""
        made, shape, bank = self.made, self.made.shape, table.bank
        assert bank is not None and self.found is not None and self.forecasts.latent is not None
        events = []
        source, at, stride = self.x, first, N_BAR
        if table.key_dim == shape.step_dim:
            tokens = shape.scenarios * shape.horizon
            events.append(layer(self.forecasts.latent, table.weights.project, tokens, 0))
            source, at, stride = self.table, row, made.sizes.bar_row
        width = up(table.key_dim, SUM_LANES)
        sizes = (at, row, stride, table.key_dim, bars if made.sizes.group else width)
        groups = -(-bars // QUERIES)
        names = ("keys", "center", "entries", "disagree")
        arrays = (source, *(bank[name] for name in names), self.found)
        events.append(
            made.program.kernel("bar_search")(
                queue,
                *(((SUM_LANES * groups,), (SUM_LANES,)) if made.sizes.group else ((bars,), (1,))),
                *(array.buffer for array in arrays),
                *(np.int32(i) for i in sizes),
            )
        )
        return events

    @property
    def buffers(self) -> tuple[Any, Any]:
        """The tables, and the slots that step banks retrieved."""
        return self.table.buffer, None if self.found is None else self.found.buffer
