"""COLLECT: one greedy trajectory in the order of time fills the banks; the weights are frozen.

A first look at the contexts fixes centre and threshold, then every decision's pseudo-residual is
given to the banks, row by row. An observation can influence only later decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from backtest.agent import streams
from backtest.agent.bank import Bank
from backtest.agent.bank.ordered import norm
from backtest.agent.bank.retrieval import retrieve_rows
from backtest.agent.experience import Experience
from backtest.features.names import MARKET_DIM
from backtest.market.layout import N_BRANCHES, N_PORTFOLIO, Array, End
from opencl.bank import DeviceBank
from opencl.collector import experience as as_experience
from opencl.formation.actor import BANKS, Actor, Ground

if TYPE_CHECKING:
    from backtest.agent.skills.decisions import Decisions, Rows

CONTEXT_ROWS = 16_384  # contexts of the first look, evenly spread; a longer window is thinned
BLOCK = 1024  # rows learned, or searched, at a time


@dataclass(frozen=True)
class Collected:
    """What COLLECT left beside the banks.

    Attributes:
        rows: decisions of the trajectory.
        gradient_rows: of them, those taken backward.
        episodes: 1, and one more after each ruin.
        coverage: share of the contexts that each bank's search answers at the end.
    """

    rows: int
    gradient_rows: int
    episodes: int
    coverage: Mapping[str, float]


def collect(
    actor: Actor,
    ground: Ground,
    banks: Mapping[str, Bank],
    stop: Callable[[], None] = lambda: None,
) -> tuple[dict[str, Bank], Collected]:
    """Fill banks from one pass over the bars.

    Args:
        actor: the frozen policy.
        ground: bars of the train window.
        banks: empty ones by name.
        stop: called between blocks; raises to stop.

    Returns:
        The filled banks, closed, and what was done.
    """
    past = trajectory(actor, ground)
    decisions = actor.decisions(ground, past)
    every = np.arange(len(decisions))
    seen = every[:: max(1, -(-len(every) // CONTEXT_ROWS))]
    looked: dict[str, list[Array]] = {name: [] for name in banks}
    for rows in decisions.blocks(seen):
        stop()
        for name, (keys, _) in queries(banks, decisions, rows).items():
            looked[name].append(keys)
    contexts = {name: np.concatenate(parts) for name, parts in looked.items()}
    for name, bank in banks.items():
        index = BANKS.index(name)
        draws = streams.generator(actor.policy.seed, actor.stream, streams.Stage.CONTEXT, index)
        bank.fit_context(contexts[name], draws)
    learned = every[decisions.complete]
    held = {name: DeviceBank(actor.device, [bank]) for name, bank in banks.items()}
    for rows in decisions.blocks(learned, BLOCK):
        stop()
        gradients = decisions.gradients(rows)
        for name, (keys, sizes) in queries(banks, decisions, rows).items():
            held[name].update_rows(keys[None], gradients[name][None], sizes[None])
    filled = {}
    for name, device_bank in held.items():
        device_bank.close_collection()
        (filled[name],) = device_bank.read()
    coverage = {name: covered(filled[name], contexts[name]) for name in filled}
    return filled, Collected(len(every), len(learned), past.reward.shape[1], coverage)


def covered(bank: Bank, contexts: Array) -> float:
    """Return the share of contexts float32[n, K] that a bank's search answers."""
    snapshot, n = bank.snapshot(), len(contexts)
    parts = (contexts[first : first + BLOCK] for first in range(0, n, BLOCK))
    return sum(int((retrieve_rows(snapshot, part) >= 0).sum()) for part in parts) / n


def queries(
    banks: Mapping[str, Bank], decisions: Decisions, rows: Rows
) -> dict[str, tuple[Array, Array]]:
    """Return what each bank is searched by, and the size of the state that it corrects.

    Keys are float32[B, K], hidden states or market features; sizes are float32[B], |h|.
    """
    hidden = dict(zip(BANKS, decisions.contexts(rows), strict=True))
    found = {}
    for name, bank in banks.items():
        keys = hidden[name]
        if bank.section.key == "features":
            state = decisions.batch(rows).state
            now = state if state.ndim == 2 else state[:, 0]
            keys = now[:, :MARKET_DIM].cpu().numpy()
        found[name] = keys, norm(hidden[name])
    return found


def trajectory(actor: Actor, ground: Ground) -> Experience:
    """Return the greedy trajectory over all bars; after a ruin it restarts at the next bar."""
    parts: list[Experience] = []
    first, last = ground.first, ground.first + ground.steps
    while first < last:
        out = actor.play(
            ground, np.array([first]), last - first, [None], portfolio=True, slots=False
        )
        part = as_experience(out)
        parts.append(part)
        first += part.steps
    return side_by_side(parts)


def side_by_side(parts: Sequence[Experience]) -> Experience:
    """Return single episodes as one experience; shorter ones end in rows that are not alive."""
    if len(parts) == 1:
        return parts[0]
    steps, episodes = max(part.steps for part in parts), len(parts)
    action = np.zeros((steps, episodes, N_BRANCHES), np.uint8)
    reward = np.zeros((steps, episodes), np.float32)
    end = np.full((steps, episodes), End.DEAD, np.uint8)
    portfolio = np.zeros((steps + 1, episodes, N_PORTFOLIO), np.float32)
    equity = np.zeros((steps, episodes), np.float32)
    for i, part in enumerate(parts):
        n = part.steps
        action[:n, i], reward[:n, i], end[:n, i] = (
            part.action[:n, 0],
            part.reward[:n, 0],
            part.end[:n, 0],
        )
        portfolio[: n + 1, i], equity[:n, i] = part.portfolio[: n + 1, 0], part.equity[:n, 0]
    start = np.concatenate([part.start for part in parts])
    return Experience(start, action, reward, end, portfolio, None, equity)
