"""What each policy earned in each episode: reward, its components and terms, and PnL.

Means are over the steps an episode took: ruin ends it, and the bars that it did not see count for
nothing, or the quickest loser would look cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from backtest.audit.policies import POLICIES, target_paths
from backtest.market.layout import COMPONENTS, STEP, Array, End
from backtest.market.reward import weighted_terms
from backtest.market.tape import Tape

# (tape, start int[n], targets float32[steps, n]) -> `StepResult` records [steps, n]
Simulate = Callable[[Tape, Array, Array], Array]

# StepResult records that exist at once: 28 episodes of 1,000 steps, 252 of four groups' 256 items
CHUNK_BYTES = 19_500_000
BLOCK_STEPS = 64  # rows summed at a time, so that they stay in the processor's cache


@dataclass(frozen=True)
class Scores:
    """Per episode, float64[len(POLICIES), n]; column i of every policy walked the same bars.

    Attributes:
        reward: mean reward per step.
        components: mean of every unweighted component per step.
        terms: mean of every signed, weighted term of the sum per step.
        pnl: net PnL of the episode, currency.
        ruined: 1 where equity fell to the ruin level, else 0.
    """

    reward: Array
    components: dict[str, Array]
    terms: dict[str, Array]
    pnl: Array
    ruined: Array


def episodes_per_chunk(steps: int) -> int:
    """Return how many episodes of all policies fit the memory of one chunk."""
    return max(1, CHUNK_BYTES // (STEP.dtype.itemsize * steps * len(POLICIES)))


def play(
    simulate: Simulate, tape: Tape, start: Array, steps: int, key: Array, episode: Array
) -> Scores:
    """Run every policy through the same episodes.

    Args:
        simulate: the market; see `Simulate`.
        tape: bars and parameters.
        start: int[n], decision bar of each episode's step 0.
        steps: length of the episodes.
        key: uint32[2] of `rng.key`.
        episode: int[n], ids of the episodes in the random streams.
    """
    targets = target_paths(tape, start, steps, key, episode)
    shape = targets.shape[1:]
    result = simulate(tape, np.tile(start, len(POLICIES)), targets.reshape(steps, -1))
    return score(tape.params, result, shape)


def score(params: Array, result: Array, shape: tuple[int, ...]) -> Scores:
    """Reduce `StepResult` records [steps, policies * n] to scores of the given shape."""
    columns = result.shape[1]
    names = tuple(weighted_terms(params, dict.fromkeys(COMPONENTS, np.zeros(1, np.float32))))
    components = {name: np.zeros(columns) for name in COMPONENTS}
    terms = {name: np.zeros(columns) for name in names}
    sums = {name: np.zeros(columns) for name in ("reward", "gross")}
    taken, ruined = np.zeros(columns), np.zeros(columns)
    for first in range(0, len(result), BLOCK_STEPS):
        block = result[first : first + BLOCK_STEPS]
        # rows after an end are zero in every column, so that they add nothing
        values = {name: np.ascontiguousarray(block[name]) for name in COMPONENTS}
        _add(components, values)
        _add(terms, weighted_terms(params, values))
        _add(sums, {name: block[name] for name in sums})
        taken += (block["end"] != End.DEAD).sum(axis=0)
        ruined += (block["end"] == End.TERMINATED).sum(axis=0)
    pnl = sums["gross"] - components["tx_cost"]
    return Scores(
        reward=(sums["reward"] / taken).reshape(shape),
        components={name: (total / taken).reshape(shape) for name, total in components.items()},
        terms={name: (total / taken).reshape(shape) for name, total in terms.items()},
        pnl=pnl.reshape(shape),
        ruined=ruined.reshape(shape),
    )


def joined(parts: Sequence[Scores]) -> Scores:
    """Join the episodes of several chunks."""

    def join(arrays: Sequence[Array]) -> Array:
        return np.concatenate(arrays, axis=1)

    first = parts[0]
    return Scores(
        reward=join([part.reward for part in parts]),
        components={k: join([part.components[k] for part in parts]) for k in first.components},
        terms={k: join([part.terms[k] for part in parts]) for k in first.terms},
        pnl=join([part.pnl for part in parts]),
        ruined=join([part.ruined for part in parts]),
    )


def _add(totals: dict[str, Array], rows: Mapping[str, Array]) -> None:
    for name, total in totals.items():
        total += rows[name].sum(axis=0, dtype=np.float64)
