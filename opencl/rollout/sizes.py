"""Sizes that the kernels of a rollout, and whoever packs their arguments, must agree on."""

from __future__ import annotations

from collections.abc import Sequence

from backtest.agent.scenario_layout import BALANCE, CALENDAR, POSITION
from backtest.agent.weights import AUX_COLUMN, N_BAR
from backtest.errors import DeviceError
from backtest.market.layout import BRANCHES, N_PORTFOLIO
from opencl.rollout.shape import Shape

LANES = 16  # episodes a work-item on a CPU; the width of float16
TILE = 32  # most episodes a work-group on a GPU
BARS_PER_ITEM = 8  # bars a work-item of bar_dense
SUM_LANES = 64  # of an ordered sum
GUESS = N_PORTFOLIO + len(CALENDAR) + 1  # what a task context is linear in, and 1
QUERY_WIDTH = 8  # floats a packed query element: a bias and up to seven weights


class Sizes:
    """What a shape's kernels are compiled for.

    Attributes:
        shape: of the networks.
        group: for `rollout_group`, not `rollout_lanes`.
        head: rows of an action's head, padded.
        items: work-items a work-group.
        hidden: widths of the trunk's layers, padded.
        slots: skills of a bank, padded.
        task_row: floats of a task context, padded.
        step_row: floats of a step context, padded.
        calendar_at: first calendar query of a bar in a table, behind the tokens.
        share_at: first scenario weight of a bar in a table.
        input_at: first float that calendar queries read of a bar, in a table.
        bar_row: floats of a bar in a table.
        past: neurons that later steps' sums need of earlier steps, 0 without a stack.
        chunk: scenarios whose interpretations lie in local memory together.
        tile: episodes that one work-group, or the one work-item, walks.
    """

    def __init__(self, shape: Shape, group: bool, local_memory: int, device: str) -> None:
        """Compute all sizes.

        Args:
            shape: of the networks.
            group: for `rollout_group`.
            local_memory: bytes a work-group.
            device: its name, for the message.

        Raises:
            DeviceError: the network does not fit the device's local memory.
        """
        self.shape, self.group = shape, group
        self.head = 64 * -(-shape.atoms // 64) if group else 4 * -(-shape.atoms // 4)
        self.items = max(128, self.head) if group else 1
        if group and self.items % self.head:
            self.items = self.head
        first, second = shape.hidden
        scenario = shape.kind == "scenario"
        # add_lanes writes four outputs at a time
        self.hidden = (4 * -(-first // 4) if scenario else first, 4 * -(-second // 4))
        self.slots = 4 * -(-shape.slots // 4)  # search_lanes reads four keys at a time
        self.task_row = SUM_LANES * -(-shape.task_dim // SUM_LANES)
        self.step_row = SUM_LANES * -(-shape.step_dim // SUM_LANES)
        self.calendar_at = shape.step_dim
        self.share_at = shape.step_dim + shape.task_dim // 3
        self.input_at = self.share_at + shape.scenarios
        # gather reads up to three floats beyond what it wants
        self.bar_row = 4 * -(-(self.input_at + len(CALENDAR)) // 4) + 4 if scenario else first
        self.past = (shape.stack_size - 1) * self.hidden[0]
        self.chunk, self.tile = self._tile(local_memory, device) if group else (0, LANES)

    def defines(self) -> dict[str, int]:
        """Return the constants the kernels are specialised to, by name."""
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
            "GUESS": GUESS,
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
                "TASK_ROUNDS": self.task_row // SUM_LANES,
                # a state's features may be searched by too
                "SEARCH_ROW": max(self.step_row, SUM_LANES * -(-N_BAR // SUM_LANES)),
                "CALENDAR_AT": self.calendar_at,
                "SHARE_AT": self.share_at,
                "INPUT_AT": self.input_at,
                "N_CALENDAR": len(CALENDAR),
                "BALANCE_MASK": _mask(BALANCE),
                "POSITION_MASK": _mask(POSITION),
            }
        if not self.group:
            return sizes | {"LANES": LANES}
        row, rows = self.tile + 4, max(first, self.items)
        sizes |= {"GROUP": self.items, "TILE": self.tile, "ROW": row, "LOGIT_ROWS": rows}
        sizes |= {"ROOM_ROWS": self._room(self.chunk), "CHUNK": self.chunk}
        # sums whose lanes, four episodes of each item, fit where h1 will be
        return sizes | {"SEARCH_BLOCK": rows * row // (4 * (self.items + 4))}

    def _room(self, chunk: int) -> int:
        """Return the rows of local memory that h2, interpretations and sums take turns in."""
        searched = self.slots + GUESS if self.slots else 0
        return max(self.hidden[1], 3 * self.shape.latent * chunk, searched)

    def _tile(self, local_memory: int, device: str) -> tuple[int, int]:
        """Return scenarios a chunk and episodes a work-group."""
        first, second = self.hidden
        width = 3 * self.shape.latent
        # as many scenarios at a time as fit where h2 will be
        chunk = min(max(1, second // width), self.shape.scenarios) if width else 0
        rows = max(first, self.items) + self._room(chunk) + N_PORTFOLIO + len(self.shape.heads)
        for tile in (TILE, 16, 8, 4):
            if tile <= TILE and rows * (tile + 4) * 4 + 8 * tile <= local_memory:
                return chunk, tile
        raise DeviceError(
            f"{device}: hidden layers {first}, {second} need {rows * 32} bytes of local memory, "
            f"there are {local_memory}; use a smaller network.hidden"
            f"{' or network.latent' if width else ''}, or device = cpu"
        )


def _mask(places: Sequence[int]) -> int:
    """Return the bits of these portfolio floats; weights lie in the order of the bits."""
    return sum(1 << place for place in places)
