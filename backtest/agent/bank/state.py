"""Everything a bank remembers, as flat arrays: what is hashed, saved and mirrored on a device."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.9, 0.95)  # of the cosine of random pairs of contexts
AUTO_QUANTILE = QUANTILES.index(0.9)  # the one that is the automatic threshold
UNFITTED_THRESHOLD = 0.7  # "auto" before a first look at contexts

COUNTERS = (
    "rows",  # observations given
    "non_finite",  # refused: h, g or a figure is not finite
    "swallowed",  # summed into a cell that has not emitted yet
    "recycled",  # cells given up for a new key
    "ticks",  # emitted observations
    "small",  # |g| zero or far below its average
    "matches",
    "revivals",  # matches of an inactive slot
    "seeds",
    "confirmations",
    "resets",
    "promotions_free",
    "promotions_evict",
    "drops",  # promotions that found no place
    "expired",  # candidates whose time ran out
    "hits",
    "misses",
    "abstentions",
    "direction_updates",
    "utility_updates",
    "utility_skips",
)


@dataclass
class BankState:
    """One bank of N slots, P candidates, C cells; keys of K, corrections of D dimensions.

    Functions of this package change the arrays in place. Free places are all zero. Keys are
    centred: context minus `center`.
    """

    keys: Floats  # [N, K]
    corrections: Floats  # [N, D]
    directions: Floats  # [N, D], unit
    scale: Floats  # [N], norm of a correction
    utility: Floats  # [N], about -1 to 1
    observations: Ints  # [N]
    uses: npt.NDArray[np.int64]  # [N], episode-steps
    mass: Floats  # [N], average activity
    used: Bytes  # [N]
    state: Ints  # [N], SlotState
    age: Ints  # [N], ticks without use
    protection: Ints  # [N], ticks left
    influence: Floats  # [N], of the episode that runs
    retrieved: Bytes  # [N], since the last tick
    contacts: Ints  # [N], observations whose best key was this slot's
    agreement: Floats  # [N], mean direction cosine of the contacts
    pool_keys: Floats  # [P, K]
    pool_corrections: Floats  # [P, D]
    pool_directions: Floats  # [P, D]
    pool_scale: Floats  # [P]
    pool_used: Bytes  # [P]
    pool_streak: Ints  # [P]
    pool_clock: Ints  # [P], ticks since it was last confirmed
    cell_keys: Floats  # [C, K]
    cell_sum: Floats  # [C, D], of g since the cell last emitted
    cell_count: Ints  # [C], terms of the sum
    cell_used: Bytes  # [C]
    cell_last: Ints  # [C], cell_clock of its last observation
    cell_clock: Ints  # [], observations that entered cells
    center: Floats  # [K], mean context; 0 without centring
    threshold: Floats  # [], cosine
    quantiles: Floats  # [6], see QUANTILES; 0 until fitted
    fitted: Bytes  # [], 1 = centre, quantiles and an automatic threshold come from contexts
    norm_ema: Floats  # [], average |g|; 0 = no observation yet
    h_mean: Floats  # [], mean |h| of the valid rows since `clear`
    h_count: Ints  # [], those rows
    norm_ref: Floats  # [], median scale of live skills at close_collection; 0 = not closed
    h_ref: Floats  # [], h_mean at close_collection
    counters: npt.NDArray[np.int64]  # see COUNTERS

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter."""
        self.counters[COUNTERS.index(name)] += by

    def arrays(self) -> dict[str, Array]:
        """Return the arrays themselves by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def empty(slots: int, key_dim: int, dim: int, pool: int, cells: int) -> BankState:
    """Return the state of a new bank; centre 0, threshold and quantiles as if never fitted."""
    length = {"N": slots, "P": pool, "C": cells}

    def zeros(group: str, *shape: int, kind: type = np.float32) -> Array:
        return np.zeros((length[group], *shape), kind)

    def scalar(value: float = 0, kind: type = np.float32) -> Array:
        return np.array(value, kind)

    return BankState(
        keys=zeros("N", key_dim),
        corrections=zeros("N", dim),
        directions=zeros("N", dim),
        scale=zeros("N"),
        utility=zeros("N"),
        observations=zeros("N", kind=np.int32),
        uses=zeros("N", kind=np.int64),
        mass=zeros("N"),
        used=zeros("N", kind=np.uint8),
        state=zeros("N", kind=np.int32),
        age=zeros("N", kind=np.int32),
        protection=zeros("N", kind=np.int32),
        influence=zeros("N"),
        retrieved=zeros("N", kind=np.uint8),
        contacts=zeros("N", kind=np.int32),
        agreement=zeros("N"),
        pool_keys=zeros("P", key_dim),
        pool_corrections=zeros("P", dim),
        pool_directions=zeros("P", dim),
        pool_scale=zeros("P"),
        pool_used=zeros("P", kind=np.uint8),
        pool_streak=zeros("P", kind=np.int32),
        pool_clock=zeros("P", kind=np.int32),
        cell_keys=zeros("C", key_dim),
        cell_sum=zeros("C", dim),
        cell_count=zeros("C", kind=np.int32),
        cell_used=zeros("C", kind=np.uint8),
        cell_last=zeros("C", kind=np.int32),
        cell_clock=scalar(kind=np.int32),
        center=np.zeros(key_dim, np.float32),
        threshold=scalar(UNFITTED_THRESHOLD),
        quantiles=np.zeros(len(QUANTILES), np.float32),
        fitted=scalar(kind=np.uint8),
        norm_ema=scalar(),
        h_mean=scalar(),
        h_count=scalar(kind=np.int32),
        norm_ref=scalar(),
        h_ref=scalar(),
        counters=np.zeros(len(COUNTERS), np.int64),
    )
