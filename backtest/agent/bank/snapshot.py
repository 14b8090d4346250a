"""What a retrieval reads of a bank: flat arrays, frozen for a whole rollout.

Kernels and NumPy search the same arrays, so both find the same slot bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

MISS = -1  # no eligible slot reaches the threshold
ABSTAIN = -2  # the two best slots are close and point apart


@dataclass(frozen=True)
class Snapshot:
    """One bank of N slots, keys of K dimensions, corrections of D, with a fixed strength."""

    center: Floats  # [K], subtracted from a context before the search; 0 without centring
    keys: Floats  # [N, K], centred
    norms: Floats  # [N], sqrt of the ordered sum of squares of the centred keys
    eligible: Bytes  # [N], 1 = may be retrieved
    bonus: Floats  # [N], added to the cosine of an eligible slot: utility and exploration
    disagree: Bytes  # [N, N], 1 = the two directions have a negative cosine
    shift: Floats  # [N, D], what a hit adds to the hidden state, alpha and unit inside
    threshold: np.float32  # least cosine of a hit
