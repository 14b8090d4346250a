"""ScoreSlots, ScoreFinalize, arg-max and GatherCorrection: which skill a query finds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from backtest.agent.bank.codes import CLOSE_SCORES
from backtest.agent.bank.ordered import LEAST, ordered_sum, square
from backtest.agent.bank.snapshot import ABSTAIN, MISS, Floats, Snapshot

Slots = npt.NDArray[np.int32]

NO_SCORE = np.float32(-np.inf)
CLOSE = np.float32(CLOSE_SCORES)


def scores(snapshot: Snapshot, h: Floats) -> Floats:
    """Return the score float32[B, N] of every slot for queries h float32[B, K].

    cos + bonus where the slot is eligible and the cosine reaches the threshold; -inf elsewhere,
    and for queries that are not finite or have no direction.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        x = h - snapshot.center
        xx = square(x)
        known = np.isfinite(xx) & (xx >= LEAST)
    x_norm = np.sqrt(np.where(known, xx, np.float32(1)))
    x = np.where(known[:, None], x, np.float32(0))
    result = np.full((len(h), len(snapshot.keys)), NO_SCORE)
    for slot in np.flatnonzero(snapshot.eligible):
        dot = ordered_sum(x * snapshot.keys[slot])
        cosine = dot / (x_norm * snapshot.norms[slot])
        hit = known & (cosine >= snapshot.threshold)
        result[hit, slot] = cosine[hit] + snapshot.bonus[slot]
    return result


def retrieve_rows(snapshot: Snapshot, h: Floats) -> Slots:
    """Return int32[B]: the best slot of each query h float32[B, K], MISS or ABSTAIN.

    Ties go to the lowest slot. ABSTAIN: the two best scores lie within 0.02 and the two
    directions have a negative cosine.
    """
    table = scores(snapshot, h)
    rows = np.arange(len(h))
    first = table.argmax(1)
    best = table[rows, first]
    table[rows, first] = NO_SCORE
    second = table.argmax(1)
    runner = table[rows, second]
    found, rival = np.isfinite(best), np.isfinite(runner)
    with np.errstate(invalid="ignore"):
        close = rival & (best - runner <= CLOSE)
    torn = close & (snapshot.disagree[first, second] != 0)
    return np.where(torn, ABSTAIN, np.where(found, first, MISS)).astype(np.int32)


def apply_rows(snapshot: Snapshot, h: Floats, slots: Slots) -> Floats:
    """Return hidden states float32[B, D] with the corrections of int32[B] slots added.

    A select: rows without a slot (MISS, ABSTAIN) come back bit for bit.
    """
    hit = (slots >= 0)[:, None]
    return np.where(hit, h + snapshot.shift[np.maximum(slots, 0)], h)
