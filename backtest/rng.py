"""Philox4x32-10: the counter-based random numbers that host and kernels share.

A number is a pure function of (seed, instrument, fold) and of where it is used, so a result does
not depend on batching, on the device or on what runs beside it. Twin: `opencl/kernels/philox.cl`.
Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC11.
"""

from __future__ import annotations

from enum import IntEnum
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Words = npt.NDArray[np.uint32]

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)  # of counter words 0 and 2
WEYL = (0x9E3779B9, 0xBB67AE85)  # added to the key after each round


class Stage(IntEnum):
    """What a number is drawn for: the high half of counter word 0.

    `round` is the low half: the epoch of a stage that repeats, the draw number of a baseline, else
    0. Values are part of every result: append, never renumber.
    """

    COLLECT = 0  # exploration: draws 2i, 2i+1 = whether branch i explores, and its action
    START = 1  # first bar of an episode
    VALIDATE = 2
    TEST = 3
    BASELINE = 4  # random policy with matched turnover
    AUDIT = 5  # scripted policies of the reward audit
    REPLAY = 6  # which transitions a batch holds; t = update
    WEIGHTS = 7  # initial weights of networks
    SYNTHETIC = 8  # generated bars
    BOOTSTRAP = 9  # confidence intervals
    BANK = 10  # skill banks


def hash32(text: str) -> int:
    """Return the first 4 bytes, little endian, of SHA-256 of the UTF-8 text."""
    return int.from_bytes(sha256(text.encode()).digest()[:4], "little")


def key(seed: int, instrument: str, fold_key: str) -> Words:
    """Return the key uint32[2] of all streams of one seed, instrument and fold.

    The study is not part of it: the arms of a comparison share their random numbers.

    Raises:
        ValueError: seed outside [0, 2**32).
    """
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed {seed}: allowed are 0 to 2**32 - 1")
    return np.array([seed, hash32(f"{instrument}|{fold_key}")], np.uint32)


def stream(stage: Array | int, round: Array | int) -> Words:
    """Return counter word 0, `stage*2**16 + round`, uint32 of the broadcast shape.

    Raises:
        ValueError: stage or round outside [0, 2**16).
    """
    high, low = _word(stage, "stage", 2**16), _word(round, "round", 2**16)
    return high << np.uint32(16) | low


def uniform(
    key: Array,
    stage: Array | int,
    round: Array | int,
    episode: Array | int,
    t: Array | int,
    draw: Array | int,
) -> Array:
    """Return float32 in [0, 1), multiples of 2**-24; arguments broadcast against each other.

    For every n < 2**24 the float32 product of u and n stays below n, so its truncation is a fair
    integer in [0, n) on host and device alike.

    Args:
        key: uint32[..., 2] of `key()`.
        stage: a `Stage`.
        round: in [0, 2**16).
        episode: id within (fold, seed), in [0, 2**32).
        t: step within the episode, in [0, 2**32).
        draw: number of the draw within the step, in [0, 2**32).

    Raises:
        ValueError: an argument is outside its range.
    """
    counter = (
        stream(stage, round),
        _word(episode, "episode", 2**32),
        _word(t, "t", 2**32),
        _word(draw, "draw", 2**32),
    )
    x = _blocks(counter, (key[..., 0], key[..., 1]))[0]
    return (x >> np.uint32(8)).astype(np.float32) * np.float32(2**-24)


def philox4x32_10(counter: Words, key: Words) -> Words:
    """Return the blocks uint32[..., 4] of counters uint32[..., 4] under keys uint32[..., 2]."""
    words = tuple(counter[..., i] for i in range(4))
    return np.stack(np.broadcast_arrays(*_blocks(words, (key[..., 0], key[..., 1]))), axis=-1)


def _blocks(counter: tuple[Array, ...], key: tuple[Array, ...]) -> tuple[Array, ...]:
    # Words stay apart, so that a scalar word is not blown up before it meets an array.
    c0, c1, c2, c3 = counter
    k0, k1 = (np.asarray(k, np.uint32) for k in key)
    m0, m1 = (np.uint64(m) for m in MULTIPLIERS)
    with np.errstate(over="ignore"):  # the key wraps by design; NumPy warns for scalars
        for _ in range(ROUNDS):
            p0, p1 = c0 * m0, c2 * m1  # uint64: high word, low word
            c0, c1, c2, c3 = _high(p1) ^ c1 ^ k0, _low(p1), _high(p0) ^ c3 ^ k1, _low(p0)
            k0, k1 = k0 + np.uint32(WEYL[0]), k1 + np.uint32(WEYL[1])
    return c0, c1, c2, c3


def _high(product: Array) -> Array:
    return (product >> np.uint64(32)).astype(np.uint32)


def _low(product: Array) -> Array:
    return product.astype(np.uint32)


def _word(value: Array | int, name: str, stop: int) -> Words:
    array = np.asarray(value)
    if array.dtype.kind not in "iu":
        raise ValueError(f"{name} must be integer, not {array.dtype}")
    if array.size and (array.min() < 0 or array.max() >= stop):
        raise ValueError(f"{name} {array.min()}..{array.max()}: allowed are 0 to {stop - 1}")
    return array.astype(np.uint32)
