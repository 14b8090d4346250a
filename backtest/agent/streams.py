"""Counter-based random numbers of the learner: Philox (Salmon 2011), keyed by seed and fold.

A draw depends on what it is for and on its index, never on what was drawn before it, so a resumed
run needs no generator state and runs side by side cannot disturb each other.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Stage(IntEnum):
    """What a stream is for."""

    WEIGHTS = 0  # index: 0
    REPLAY = 1  # index: the first update of the sampled block
    AUX = 2  # index: which direction forecaster; 10: the order of the shuffled labels
    FORECASTER = 3  # index: 0 weights, 1 minibatches
    CONTEXT = 4  # pairs of contexts; index: 0 task bank, 1 step bank
    FINETUNE = 5  # index: the first update of the sampled block
    DIRECTION = 6  # random directions; index: which bank of them


def generator(seed: int, stream: int, stage: Stage, index: int = 0) -> np.random.Generator:
    """Return the generator of (seed, stream, stage, index).

    Args:
        seed: the run's seed, >= 0.
        stream: hash32 of "instrument|fold key"; 0 outside a fold.
        stage: the purpose.
        index: position within the stage.
    """
    # numpy counts blocks up in the first word; the others separate the streams
    counter = np.array([0, 0, index, stage], np.uint64)
    key = np.array([seed, stream], np.uint64)
    return np.random.Generator(np.random.Philox(counter=counter, key=key))
