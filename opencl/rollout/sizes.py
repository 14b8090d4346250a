"""Sizes that the kernels of a rollout, and whoever packs their arguments, must agree on."""

from __future__ import annotations

from collections.abc import Sequence

from backtest.agent.scenario_layout import BALANCE, CALENDAR, POSITION
from backtest.agent.weights import AUX_COLUMN, N_BAR
from backtest.errors import DeviceError
from backtest.market.layout import BRANCHES, N_PORTFOLIO
from opencl.retrieval import search_sizes, slot_tile
from opencl.rollout.shape import Shape

LANES = 16  # episodes a work-item on a CPU; the width of float16
LANE_SUMS = 4  # outputs of theirs that it keeps in registers
WIDE_SUMS = 26  # the same where a register holds a float16, as with AVX-512
BARS_PER_ITEM = 8  # bars a work-item of bar_dense
COLUMNS = 8  # outputs that an item of bar_dense computes
SUM_LANES = 64  # of an ordered sum
WARP = 32  # work-items that an instruction of a tensor core joins
MMA = 16  # rows of its tile, and inputs that it sums over
TOKENS = WARP * 4  # words of one scenario's tokens as tensor cores read them
QUERY_TENSOR = 2 * TOKENS  # words of the weights of one scenario's queries of one group, likewise
GUESS = N_PORTFOLIO + len(CALENDAR) + 1  # what a task context is linear in, and 1
QUERY_WIDTH = 8  # floats a packed query element: a bias and up to seven weights
# On a GPU, by measurement (H200):
TILE = 32  # most episodes a work-group
LEAST_TILE = 16  # with fewer, a group reads the weights for too few episodes
BLOCK = 17  # most neurons whose sums of four episodes an item keeps in registers
# The same for tensor cores:
TENSOR_TILE = 128
WARPS = 16  # on a multiprocessor, if an item uses that many registers:
REGISTERS = 128
OPERANDS = 64  # registers that hold weights, most
LIMIT = 120  # of a logit, log 2: the sum of 2^120 over 128 atoms is finite


class Sizes:
    """What a shape's kernels are compiled for.

    Attributes:
        shape: of the networks.
        group: for `rollout_group`, not `rollout_lanes`.
        tensor: with layers for tensor cores.
        head: columns of an action's head, padded.
        block: neurons of the second layer, and atoms, that an item sums at a time.
        shares: items that share the second layer of an episode.
        items: work-items a work-group.
        registers: most that one of them may use, 0 for no limit.
        head_pass: blocks of eight atoms whose weights a warp holds at a time.
        hidden: widths of the trunk's layers, padded.
        slots: skills of a bank, padded.
        task_row: floats of a task context, padded.
        step_row: floats of a step context, padded.
        calendar_at: first calendar query of a bar in a table, behind the tokens.
        share_at: first scenario weight of a bar in a table.
        input_at: first float that calendar queries read of a bar, in a table.
        tokens_at: first token as tensor cores read it of a bar, in a table.
        bar_row: floats of a bar in a table.
        past: neurons that later steps' sums need of earlier steps, 0 without a stack.
        chunk: scenarios whose interpretations lie in local memory together.
        room: rows of local memory for these and for the search of a task bank, behind those of h.
        tile: episodes that one work-group, or the one work-item, walks.
    """

    def __init__(
        self,
        shape: Shape,
        group: bool,
        local_memory: int,
        device: str,
        tensor: bool = False,
        tile: int | None = None,
        together: int = 4,
    ) -> None:
        """Compute all sizes.

        Args:
            shape: of the networks.
            group: for `rollout_group`.
            local_memory: bytes a work-group.
            device: its name, for the message.
            tensor: with layers for tensor cores.
            tile: most episodes a work-group; None: as many as pay.
            together: work-groups that share a multiprocessor, 1, 2 or 4; for tensor cores.

        Raises:
            DeviceError: the network does not fit the device's local memory.
        """
        self.shape, self.group, self.tensor = shape, group or tensor, tensor
        self.together = together
        first, second = shape.hidden
        scenario = shape.kind == "scenario"
        # lanes and items take four neurons at a time, tensor cores two blocks of 16
        width = 2 * MMA if tensor else 4
        self.hidden = (up(first, width), up(second, width))
        second = self.hidden[1]
        heads = len(shape.heads)
        least = max(heads, -(-second // BLOCK))  # items that share an episode
        self.block = -(-second // least), -(-shape.atoms // -(-shape.atoms // BLOCK))
        self.shares = -(-second // self.block[0])
        self.head = up(shape.atoms, 8 if tensor else self.block[1] if group else 4)
        self.slots = up(shape.slots, 4)  # search_lanes reads four keys at a time
        self.task_row = up(shape.task_dim, SUM_LANES)
        self.step_row = up(shape.step_dim, SUM_LANES)
        self.calendar_at = shape.step_dim
        self.share_at = shape.step_dim + shape.task_dim // 3
        self.input_at = self.share_at + shape.scenarios
        # gather reads up to three floats beyond what it wants
        self.tokens_at = up(self.input_at + len(CALENDAR), 4) + 4
        self.bar_row = self.tokens_at if scenario else self.hidden[0]
        if scenario and tensor:
            self.bar_row += shape.scenarios * TOKENS
        self.past = (shape.stack_size - 1) * self.hidden[0]
        self.head_pass = self._head_pass() if tensor else 0
        self.items, self.registers = 1, 0
        self.chunk, self.room, self.tile = 0, 1, LANES
        if self.group:
            self.tile = self._tile(local_memory, device, tile)
            self.registers = REGISTERS if tensor else 0

    def defines(self) -> dict[str, int]:
        """Return the constants the kernels are specialised to, by name."""
        shape, (first, second) = self.shape, self.hidden
        columns = self.trunk_columns
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
            "W1_SIZE": self._first_layer(),
            "W2_SIZE": first * second // 2 if self.tensor else first * columns,
            "B2_SIZE": columns,
            "W3_SIZE": len(shape.heads) * self.head * second // (2 if self.tensor else 1),
            "Z_SIZE": 2 if self.tensor else self.head if self.group else shape.atoms,
            "QUERY_SIZE": self.query_at
            + (2 * shape.scenarios * QUERY_TENSOR if self.tensor else 0),
            "PAST_SIZE": max(self.past, 1),
            "SLOTS": self.slots,
            "TASK_ROW": self.task_row,
            "GUESS": GUESS,
            "LEARNED": sum(1 << i for i, name in enumerate(BRANCHES) if name in shape.learned),
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
                **(search_sizes(slot_tile(self.slots)) if self.slots else {}),
                "LATENT_ROWS": up(shape.latent, 4),
                "WEIGHT_ROW": up(shape.latent, COLUMNS),
                "TOKEN_PLACES": MMA if self.tensor else shape.horizon,
                "TENSOR": int(self.tensor),
                "TOKENS_AT": self.tokens_at,
                "QUERY_TENSOR_AT": self.query_at,
                "N_CALENDAR": len(CALENDAR),
                "BALANCE_MASK": _mask(BALANCE),
                "POSITION_MASK": _mask(POSITION),
            }
        if not self.group:
            return sizes | {"LANES": LANES, "LANE_SUMS": LANE_SUMS}
        row = self.tile + 4
        sizes |= {"GROUP": self.items, "TILE": self.tile, "ROW": row}
        sizes |= {"F_ROWS": self._states(self.tile)}
        # those beyond the tile, who walk no market; all where there are none
        sizes |= {"FIRST_DRAWER": self.tile if self.items > self.tile else 0}
        sizes |= {"ROOM_ROWS": self.room, "TEAMS": self.items // SUM_LANES}
        if self.tensor:
            steps = max(first, second) // MMA
            sizes |= {
                "WARPS": self.items // WARP,
                "STEPS1": first // MMA,
                "STEPS2": second // MMA,
                "TILES": self.tile // MMA,
                "PARTS": max(1, self.items // WARP // (self.tile // MMA)),
                "H_STEPS": steps,
                "LIMIT": LIMIT,
                "HEAD_PASS": self.head_pass,
                "MMA_TILES": min(2, self.tile // MMA),
                "TRUNK_STEPS": -(-second // MMA // (self.items // WARP)),
                "H_SIZE": self.tile // MMA * steps * WARP,
            }
        else:
            sizes |= {
                "H_SIZE": max(first, second) * row,
                "QUADS": self.tile // 4,
                "SHARES": self.items // (self.tile // 4),
                "TRUNK_BLOCK": self.block[0],
                "TRUNK_SHARES": self.shares,
                "HEAD_BLOCK": self.block[1],
                "ENCODE_BLOCK": self.encode_columns * self.tile // 4 // self.items,
                "CHUNK": self.chunk,
                "CHUNK_IN_H": min(
                    self.chunk, self._hidden_rows(self.tile) // max(self.interpretation, 1)
                ),
                "INTERPRETATION": self.interpretation,
            }
        inside, floats = self._search_in_h(self.tile), self._search_floats(self.tile)
        room = self._hidden_rows(self.tile) if inside else self.room
        # sums whose lanes, four episodes of 64 items, fit behind the rows of totals
        blocks = 1 + (room * row - sum(floats)) // floats[1]
        return sizes | {"SEARCH_IN_H": int(inside), "SEARCH_BLOCK": blocks}

    @property
    def trunk_columns(self) -> int:
        """Outputs of the second layer as its weights are packed."""
        tiled = self.group and not self.tensor
        return self.block[0] * self.shares if tiled else self.hidden[1]

    @property
    def operands(self) -> int:
        """Registers that hold weights for tensor cores, at most at a time."""
        share = self.hidden[0] * self.hidden[1] // (2 * self.items)
        return max(self.head_pass * self.hidden[1] // 8, share)

    def _head_pass(self) -> int:
        """Return the blocks of a head whose weights fit the registers, so that passes are even."""
        blocks, most = self.head // 8, max(1, OPERANDS * 8 // self.hidden[1])
        return -(-blocks // -(-blocks // most))

    def _items(self, tile: int) -> int:
        """Return the work-items of a work-group."""
        heads = len(self.shape.heads)
        if self.tensor:
            # every warp holds its share of the second layer's weights
            share = self.hidden[0] * self.hidden[1] // (2 * WARP * OPERANDS)
            return WARP * min(max(WARPS // self.together, tile // WARP, share), WARPS)
        # the search of a task bank gives 64 items to an episode
        return up(max(heads, self.shares) * tile // 4, 64 if self.slots else WARP)

    def _states(self, tile: int) -> int:
        """Return the rows of local memory for portfolio states, then action values."""
        heads = len(self.shape.heads)
        return max(N_PORTFOLIO, heads + (self._items(tile) // WARP if self.tensor else 0))

    @property
    def encode_columns(self) -> int:
        """Outputs of the scenario network's first layer as its weights are packed."""
        return up(self.hidden[0], self.items // (self.tile // 4))

    @property
    def interpretation(self) -> int:
        """Rows of one scenario's interpretation in local memory, in float32."""
        return 3 * up(self.shape.latent, 4)

    @property
    def query_at(self) -> int:
        """Floats of the queries' plain weights, before those for tensor cores."""
        return 2 * self.shape.scenarios * self.shape.latent * QUERY_WIDTH

    def _search_floats(self, tile: int) -> tuple[int, int]:
        """Return the floats that a search needs: totals with a list of episodes, lanes of sums."""
        lanes = 4 * (SUM_LANES * (self.items // SUM_LANES) + 4)
        return (self.slots + GUESS + 1) * (tile + 4), lanes

    def _search_in_h(self, tile: int) -> bool:
        """Return whether a search finds room where the activations will be."""
        return sum(self._search_floats(tile)) <= self._hidden_rows(tile) * (tile + 4)

    def _first_layer(self) -> int:
        """Return the floats of a policy's first layer."""
        shape, first = self.shape, self.hidden[0]
        if shape.kind == "mlp":
            return first * (MMA // 2 if self.tensor else N_PORTFOLIO)
        if self.tensor:
            return first * 3 * shape.scenarios * MMA // 2
        if self.group:
            return (
                self.encode_columns * shape.stack_size * 3 * shape.scenarios * up(shape.latent, 4)
            )
        return first * shape.stack_size * shape.task_dim

    def _hidden_rows(self, tile: int) -> int:
        """Return the rows of tile + 4 floats that the activations take."""
        hidden = max(self.hidden)
        return hidden * tile // (2 * (tile + 4)) if self.tensor else hidden

    def _room(self, tile: int) -> tuple[int, int]:
        """Return scenarios at a time, and the rows of local memory that encoding needs beside h."""
        if self.shape.kind == "mlp":
            return 0, 1
        searched = 1
        if self.slots and not self._search_in_h(tile):
            searched = -(-sum(self._search_floats(tile)) // (tile + 4))
        if self.tensor:  # where warps share 16 episodes, half the sums of one of them
            shared = self.items // WARP >= 2 * (tile // MMA)
            half = -(-tile * max(self.hidden) // (2 * (tile + 4))) if shared else 1
            return 1, max(searched, half)
        chunk, width = min(max(1, self.items // tile), self.shape.scenarios), self.interpretation
        return chunk, max(searched, (chunk - self._hidden_rows(tile) // width) * width)

    def tiling(self, n: int, units: int) -> tuple[int, int]:
        """Return tile and together with which n episodes fill this many multiprocessors."""
        tile = self.tile
        while tile > LEAST_TILE and -(-n // tile) < units:
            tile //= 2
        groups = -(-n // (tile * units)) if self.tensor else self.together
        return tile, 1 if groups < 2 else 2 if groups < 4 else 4

    def _tile(self, local_memory: int, device: str, most: int | None) -> int:
        """Return episodes a work-group; set its items, scenarios a chunk, and room."""
        first, second = self.hidden
        hidden = max(first, second)
        largest = most or (TENSOR_TILE if self.tensor else TILE)
        for tile in (largest, 64, 32, 16, 8, 4):
            if tile > largest or (self.tensor and tile % MMA):
                continue
            self.items = self._items(tile)
            self.chunk, self.room = self._room(tile)
            h = hidden * (2 * tile if self.tensor else 4 * (tile + 4))
            # more than one float an episode: its place, number, slot, and two steps' draws
            rows = self.room + self._states(tile)
            if h + rows * (tile + 4) * 4 + 24 * tile <= local_memory:
                return tile
        raise DeviceError(
            f"{device}: hidden layers {first}, {second} need {(hidden + rows) * 32} bytes "
            f"of local memory, there are {local_memory}; use a smaller network.hidden"
            f"{' or network.latent' if self.shape.latent else ''}, or device = cpu"
        )


def up(n: int, step: int) -> int:
    """Return the least multiple of step that is n or more."""
    return step * -(-n // step)


def _mask(places: Sequence[int]) -> int:
    """Return the bits of these portfolio floats; weights lie in the order of the bits."""
    return sum(1 << place for place in places)
