"""The two audits: on Gaussian bars, and on the train windows of the user's bars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from backtest import rng
from backtest.audit import report
from backtest.audit.order import Gap, disagreements, required_gaps
from backtest.audit.report import Audit, Row
from backtest.audit.scores import Scores, Simulate, episodes_per_chunk, joined, play
from backtest.audit.synthetic import STREAM, gaussian_tape, synthetic_params
from backtest.audit.windows import (
    capped,
    notional_ratio,
    random_starts,
    regime_shares,
    union,
)
from backtest.config import Audit as Size
from backtest.config import Config
from backtest.market.layout import Array, Formula
from backtest.market.tape import Tape
from backtest.splits import Window

SEED = 0  # the audit judges the reward, not a run: it has no seed of its own


def audit_synthetic(config: Config, simulate: Simulate, instrument: str = "synthetic") -> Audit:
    """Audit the config's reward on Gaussian bars, `config.audit.synthetic_episodes` a horizon.

    Market and costs are those of `backtest.audit.synthetic`; only `[reward]` is the config's.
    All policies walk the same bars, so every gap is paired.

    Args:
        config: the experiment.
        simulate: runs target positions; see `backtest.audit.scores.Simulate`.
        instrument: name under which the rows are stored.

    Raises:
        ConfigError: no horizon.
    """
    params = synthetic_params(config)
    key = rng.key(SEED, *STREAM)
    outcomes = []
    for steps in sorted(set(config.audit.horizons)):
        parts = []
        for episode in chunks(config.audit.synthetic_episodes, steps):
            tape, start = gaussian_tape(params, steps, key, episode)
            parts.append(play(simulate, tape, start, steps, key, episode))
        outcomes.append((steps, joined(parts)))
    return assembled(outcomes, tape, np.arange(tape.start, tape.stop), instrument, "synthetic")


def audit_bars(
    tape: Tape, windows: Sequence[Window], simulate: Simulate, instrument: str, size: Size
) -> Audit:
    """Audit a reward on bars, costs and size of an instrument: the tape's own.

    Episodes are drawn from all bars that begin a whole episode within a train window. They may
    overlap: a standard error is that of the draw from these windows, not of other years.

    Args:
        tape: bars that cover the windows, and parameters; see `windows.at_notional` for others.
        windows: train windows.
        simulate: runs target positions; see `backtest.audit.scores.Simulate`.
        instrument: name of the instrument, part of the random streams.
        size: `config.audit`; horizons are cut to the longest window.

    Raises:
        ConfigError: no horizon.
        DataError: no window holds a step.
    """
    key = rng.key(SEED, instrument, "audit")
    outcomes = []
    for steps in capped(size.horizons, windows):
        start = random_starts(windows, steps, size.user_episodes, key)
        parts = [
            play(simulate, tape, start[episode], steps, key, episode)
            for episode in chunks(size.user_episodes, steps)
        ]
        outcomes.append((steps, joined(parts)))
    return assembled(outcomes, tape, union(windows), instrument, "bars")


def chunks(episodes: int, steps: int) -> Iterator[Array]:
    """Yield the ids 0..episodes-1 in pieces that fit the memory of one chunk."""
    size = episodes_per_chunk(steps)
    for first in range(0, episodes, size):
        yield np.arange(first, min(first + size, episodes))


def assembled(
    outcomes: Sequence[tuple[int, Scores]], tape: Tape, bars: Array, instrument: str, source: str
) -> Audit:
    """Return the audit of (steps, scores) by horizon; `bars` are those the shares are taken of."""
    formula = Formula(int(tape.params["formula"])).name.lower()
    rows: list[Row] = []
    required: list[Gap] = []
    warnings: list[Gap] = []
    ruined: dict[tuple[int, str], float] = {}
    for steps, scores in outcomes:
        gaps = required_gaps(scores, source, steps)
        required += gaps
        if source == "bars":
            warnings += disagreements(scores, source, steps)
        ruined |= report.ruined_shares(scores, steps)
        rows += report.rows(scores, gaps, instrument=instrument, formula=formula, source=source)
    return Audit(
        instrument=instrument,
        formula=formula,
        source=source,
        rows=tuple(rows),
        required=tuple(required),
        warnings=tuple(warnings),
        ruined=ruined,
        regime=regime_shares(tape, bars),
        notional=notional_ratio(tape, bars),
    )
