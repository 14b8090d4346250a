"""Synthetic latents of hidden regimes that need opposite corrections, and how well a bank does."""

from typing import NamedTuple

import numpy as np

from backtest.agent.bank.retrieval import retrieve_rows

DIM = 64
PARAMETERS = {"centering": "none", "similarity_threshold": 0.7, "aggregate": 1}
NOISE = 0.35  # of a context, relative to its centre
SCATTER = 0.6  # of a residual, relative to its direction
SIZE = 0.07  # |g|, as on bars


def anatomy():
    """Centres [3, DIM] of two trained and one foreign regime, and the true direction [DIM]."""
    rng = np.random.default_rng(2024)
    basis = np.linalg.qr(rng.standard_normal((DIM, 4)))[0].T
    return 30 * basis[:3], basis[3]


CENTRES, TRUE = anatomy()


def contexts(rng, regime, rows):
    noise = rng.standard_normal((rows, DIM)) * NOISE * 30 / np.sqrt(DIM)
    return (CENTRES[regime] + noise).astype(np.float32)


def residuals(rng, which, scatter=SCATTER):
    """Residuals towards TRUE in regime 0, away from it in regime 1."""
    sign = np.where(which == 0, 1, -1)[:, None]
    noise = rng.standard_normal((len(which), DIM)) * scatter / np.sqrt(DIM)
    return (SIZE * (sign * TRUE + noise)).astype(np.float32)


def regimes(rng, share, length, rows=800):
    """Blocks of regime 0 and 1 in turn, time order: which int[n], h, g float32[n, DIM].

    Blocks of the rarer regime are `length` long, the others as much longer as `share` asks.
    """
    long = round(length * share / (1 - share))
    turns = max(1, rows // (long + length))
    which = np.tile(np.repeat([0, 1], [long, length]), turns)
    h = np.where((which == 0)[:, None], contexts(rng, 0, len(which)), contexts(rng, 1, len(which)))
    return which, h, residuals(rng, which)


class Found(NamedTuple):
    """Shares of fresh contexts, and directions."""

    right: float  # the retrieved skill corrects the right way (cosine > 0.5), regimes 0 and 1
    foreign: float  # a skill was found in the unseen regime
    cosine: float  # lowest mean cosine of the found directions with the true one


def correct(search, rng, rows=200):
    """Query a bank, `search(h [B, DIM]) -> corrections [B, DIM]`, in all three regimes."""
    right, cosines = [], []
    for regime, sign in ((0, 1), (1, -1)):
        found = search(contexts(rng, regime, rows))
        lengths = np.linalg.norm(found, axis=1)
        cosine = sign * (found @ TRUE) / np.where(lengths > 0, lengths, 1)
        right.append(float((cosine > 0.5).mean()))
        cosines.append(float(cosine[lengths > 0].mean()) if lengths.any() else 0.0)
    foreign = search(contexts(rng, 2, rows)).any(axis=1)
    return Found(float(np.mean(right)), float(np.mean(foreign)), min(cosines))


def corrections(bank):
    """The search of a `Bank`, through its snapshot."""
    snapshot = bank.snapshot()

    def search(h):
        slots = retrieve_rows(snapshot, h)
        return np.where((slots >= 0)[:, None], snapshot.shift[slots], np.float32(0))

    return search
