"""Snapshots of banks that contexts really meet: keys are drawn from the contexts themselves."""

import numpy as np

from backtest.agent.bank.ordered import ordered_sum
from backtest.agent.bank.snapshot import Snapshot


def snapshot_of(contexts, slots, dim, seed=0, threshold=0.5, strength=1.0, eligible=0.9):
    """Return a snapshot for queries like float32 contexts [n, K] with corrections of `dim` floats.

    Half of the pairs of slots disagree, and bonuses differ, so hits, misses and abstentions occur.
    """
    draw = np.random.default_rng(seed)
    center = contexts.mean(0).astype(np.float32)
    keys = (contexts[draw.integers(0, len(contexts), slots)] - center).astype(np.float32)
    opposed = np.triu(draw.random((slots, slots)) < 0.5, 1)
    return Snapshot(
        center=center,
        keys=keys,
        norms=np.sqrt(ordered_sum(keys * keys)),
        eligible=(draw.random(slots) < eligible).astype(np.uint8),
        bonus=draw.normal(0, 0.05, slots).astype(np.float32),
        disagree=(opposed | opposed.T).astype(np.uint8),
        shift=draw.normal(0, strength, (slots, dim)).astype(np.float32),
        threshold=np.float32(threshold),
    )
