"""The compiled rollout of a device and network shape; sizes that its kernels and packing share.

Two kernels do the same: `rollout_lanes` (CPU, one work-item walks 16 episodes) and
`rollout_group` (GPU, a work-group walks a tile together). A parity test holds them equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Literal

from backtest.agent.scenario_layout import BALANCE, CALENDAR, POSITION
from backtest.agent.weights import AUX_COLUMN, N_BAR
from backtest.errors import DeviceError
from backtest.market.layout import BRANCHES, N_PORTFOLIO
from opencl.devices import Device
from opencl.programs import Program
from opencl.rollout.shape import Shape
from opencl.simulate import MARKET_FILES

LANES = 16  # episodes a work-item on a CPU; the width of float16
TILE = 32  # most episodes a work-group on a GPU
BARS_PER_ITEM = 8  # bars a work-item of bar_dense
SUM_LANES = 64  # of an ordered sum
QUERY_WIDTH = 8  # floats a packed query element: a bias and up to seven weights

Variant = Literal["auto", "lanes", "group"]


@cache
def rollout_program(device: Device, shape: Shape, variant: Variant = "auto") -> RolloutProgram:
    """Return the compiled rollout of a device and network shape, one object for all calls."""
    return RolloutProgram(device, shape, variant)


def policy_files(shape: Shape, variant: Literal["lanes", "group"]) -> tuple[str, ...]:
    """Return the kernel files of a rollout in the order in which one uses another."""
    skills = ("skill_score.cl", f"bar_search_{variant}.cl") if shape.slots else ()
    scenario = ("bar_norm.cl", "bar_scenario.cl") if shape.kind == "scenario" else ()
    shared = ("bar_dense.cl", "portfolio.cl", "explore.cl", "rollout.cl")
    network = (f"layers_{variant}.cl", f"{shape.kind}_{variant}.cl", f"rollout_{variant}.cl")
    return (*MARKET_FILES, *skills, *scenario, *shared, *network)


class RolloutProgram:
    """One kernel of `rollout_*.cl` with the sizes it was compiled for.

    Attributes:
        group: `rollout_group`, not `rollout_lanes`.
        alone: local size of kernels whose item does one bar; None lets the driver choose.
        items: work-items a work-group.
        tile: episodes that one work-group, or the one work-item, walks.
        head: rows of an action's head, padded.
        hidden: widths of the trunk's layers, padded.
        slots: skills of a bank, padded.
        bar_row: floats of a bar in a table.
        past: neurons that later steps' sums need of earlier steps, 0 without a stack.
    """

    def __init__(self, device: Device, shape: Shape, variant: Variant) -> None:
        """Compile.

        Raises:
            DeviceError: the network does not fit the device's local memory.
        """
        self.device, self.shape = device, shape
        self.group = variant == "group" or (variant == "auto" and device.kind == "gpu")
        # A CPU's compiler runs eight bars side by side and the rest one by one; exp and 1/sqrt then
        # differ, and with them a bar's values by what runs beside it.
        self.alone = (1,) if device.kind == "cpu" else None
        self.head = 64 * -(-shape.atoms // 64) if self.group else 4 * -(-shape.atoms // 4)
        self.items = max(128, self.head) if self.group else 1
        if self.group and self.items % self.head:
            self.items = self.head
        first, second = shape.hidden
        scenario = shape.kind == "scenario"
        # add_lanes writes four outputs at a time
        self.hidden = (4 * -(-first // 4) if scenario else first, 4 * -(-second // 4))
        self.slots = 4 * -(-shape.slots // 4)
        self.task_row = SUM_LANES * -(-shape.task_dim // SUM_LANES)
        self.step_row = SUM_LANES * -(-shape.step_dim // SUM_LANES)
        self.calendar_at = shape.step_dim
        self.share_at = shape.step_dim + shape.task_dim // 3
        # gather reads up to three floats beyond what it wants
        self.bar_row = 4 * -(-(self.share_at + shape.scenarios) // 4) + 4 if scenario else first
        self.past = (shape.stack_size - 1) * self.hidden[0]
        self.chunk, self.tile = self._tile() if self.group else (0, LANES)
        name = "group" if self.group else "lanes"
        self.program = Program(
            device, policy_files(shape, "group" if self.group else "lanes"), self._sizes()
        )
        self.kernel = self.program.kernel(f"rollout_{name}")

    def _sizes(self) -> dict[str, int]:
        shape, (first, second) = self.shape, self.hidden
        inputs = shape.stack_size * shape.task_dim
        sizes = {
            "HIDDEN1": first,
            "HIDDEN2": second,
            "ATOMS": shape.atoms,
            "HEAD": self.head,
            "N_HEADS": len(shape.heads),
            "N_BAR_PART": N_BAR,
            "AUX_COLUMN": AUX_COLUMN,
            "BARS_PER_ITEM": BARS_PER_ITEM,
            "BAR_ROW": self.bar_row,
            "W1_SIZE": first * (inputs or N_PORTFOLIO),
            "QUERY_SIZE": 2 * shape.scenarios * shape.latent * QUERY_WIDTH,
            "PAST_SIZE": max(self.past, 1),
            "SLOTS": self.slots,
            "TASK_ROW": self.task_row,
            **{f"LEARNS_{name.upper()}": int(name in shape.learned) for name in BRANCHES},
        }
        if shape.kind == "scenario":
            sizes |= {
                "SCENARIOS": shape.scenarios,
                "HORIZON": shape.horizon,
                "LATENT": shape.latent,
                "STACK": shape.stack_size,
                "TOP_K": shape.top_k if shape.top_k < shape.horizon else 0,
                "TASK_DIM": shape.task_dim,
                # a state's features may be searched by too
                "SEARCH_ROW": max(self.step_row, SUM_LANES * -(-N_BAR // SUM_LANES)),
                "TASK_ROUNDS": self.task_row // SUM_LANES,
                "CALENDAR_AT": self.calendar_at,
                "SHARE_AT": self.share_at,
                "N_CALENDAR": len(CALENDAR),
                "BALANCE_MASK": _mask(BALANCE),
                "POSITION_MASK": _mask(POSITION),
            }
        if not self.group:
            return sizes | {"LANES": LANES}
        row, rows = self.tile + 4, max(first, self.items)
        sizes |= {"GROUP": self.items, "TILE": self.tile, "ROW": row, "LOGIT_ROWS": rows}
        sizes |= {"ROOM_ROWS": self._room(self.chunk), "CHUNK": self.chunk}
        # entries whose partial sums, four episodes of each item, fit where h1 will be
        return sizes | {"SEARCH_BLOCK": rows * row // (4 * (self.items + 1))}

    def _room(self, chunk: int) -> int:
        """Return the rows of local memory that h2, interpretations and sums take turns in."""
        searched = self.slots + 1 if self.slots else 0
        return max(self.hidden[1], 3 * self.shape.latent * chunk, searched)

    def _tile(self) -> tuple[int, int]:
        """Return scenarios a chunk and episodes a work-group."""
        first, second = self.hidden
        width = 3 * self.shape.latent
        # as many scenarios at a time as fit where h2 will be
        chunk = min(max(1, second // width), self.shape.scenarios) if width else 0
        rows = max(first, self.items) + self._room(chunk) + N_PORTFOLIO + len(self.shape.heads)
        for tile in (TILE, 16, 8, 4):
            if tile <= TILE and rows * (tile + 4) * 4 + 8 * tile <= self.device.local_memory:
                return chunk, tile
        raise DeviceError(
            f"{self.device.name}: hidden layers {first}, {second} need {rows * 32} bytes of local "
            f"memory, there are {self.device.local_memory}; use a smaller network.hidden"
            f"{' or network.latent' if width else ''}, or device = cpu"
        )


def _mask(places: Sequence[int]) -> int:
    """Return the bits of these portfolio floats; weights lie in the order of the bits."""
    return sum(1 << place for place in places)
