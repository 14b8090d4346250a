"""Policies through their test windows: folds, seeds and variants together, in one launch.

Rows of all windows lie on the device once, behind one another (`opencl.rollout.windows`); every
episode has its own steps and price base, and is what it would be alone, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from backtest.agent.bank import ABSTAIN, MISS
from backtest.evaluation.ablation import Outcome
from backtest.market.layout import Array, End
from opencl.collector import greedy
from opencl.formation.actor import BANKS, Actor
from opencl.out_of_sample import Episode, OutOfSample
from opencl.rollout import Rollout, Trajectories, Windows
from opencl.rollout.outputs import forms, size
from opencl.training import shape
from opencl.variants import Variant

NOTHING = np.zeros(0, np.int8)
OUTPUT_SHARE = 8  # of a device's memory, one part is for what a launch writes


@dataclass(frozen=True)
class Played:
    """A variant in the test window.

    Attributes:
        variant: what was played.
        episode: its account and metrics.
        action: uint8[n, 4].
        slots: int8[n, 2], task and step: a slot, `MISS` or `ABSTAIN`; None without banks.
    """

    variant: Variant
    episode: Episode
    action: Array
    slots: Array | None

    @property
    def outcome(self) -> Outcome:
        """What the ablation compares."""
        found = self.episode
        return Outcome(self.action, found.trace["end"], found.account.pnl, found.metrics["sharpe"])

    def retrievals(self, bank: str, slots: int) -> tuple[Array, dict[str, int]]:
        """Return how often each slot of a bank was retrieved, and what every search ended in.

        Args:
            bank: task or step.
            slots: of the bank.
        """
        alive = self.episode.trace["end"] != End.DEAD
        # nothing is searched without banks
        found = self.slots[alive, BANKS.index(bank)] if self.slots is not None else NOTHING
        hits = np.bincount(found[found >= 0], minlength=slots)
        return hits, {
            "test_hits": int(hits.sum()),
            "test_abstentions": int((found == ABSTAIN).sum()),
            "test_misses": int((found == MISS).sum()),
        }


@dataclass(frozen=True)
class Entry:
    """The variants of one seed in the test window of its fold, `none` first."""

    window: OutOfSample
    variants: Sequence[Variant]

    def calibrates(self, variant: Variant) -> bool:
        """Return whether copies of its banks follow the window, bar by bar."""
        return self.window.config.skills.online and bool(variant.banks)


def play(entries: Sequence[Entry], budget: int | None = None) -> Iterator[list[Played]]:
    """Play the variants of many seeds and folds of one study and instrument.

    Banks are frozen (INFERENCE), or with `skills.online` copies of them follow the window (ONLINE),
    one variant after the other.

    Args:
        entries: what to play.
        budget: bytes that one launch may write; None: an eighth of the device's memory.

    Yields:
        What each entry's variants did, in order; a launch's arrays are freed behind its last.
    """
    device = entries[0].window.device
    budget = device.global_memory // OUTPUT_SHARE if budget is None else budget
    for together in launches(entries, budget):
        yield from play_together(together)


def launches(entries: Sequence[Entry], budget: int) -> Iterator[list[Entry]]:
    """Yield entries in order, as many together as one launch may write, and at least one."""
    together: list[Entry] = []
    for entry in entries:
        if together and written([*together, entry]) > budget:
            yield together
            together = []
        together.append(entry)
    yield together


def written(entries: Sequence[Entry]) -> int:
    """Return the bytes that a launch of these entries writes."""
    steps = max(entry.window.steps for entry in entries)
    return size(forms(steps, sum(len(entry.variants) for entry in entries), 0, ("trace", "slots")))


def play_together(entries: Sequence[Entry]) -> Iterator[list[Played]]:
    """Play entries in one launch; the kernel reads snapshots of their banks."""
    casts = [
        (i, variant)
        for i, entry in enumerate(entries)
        for variant in entry.variants
        if not entry.calibrates(variant)
    ]
    windows, window_of = distinct_windows(entries)
    config, device = entries[0].window.config, entries[0].window.device
    rollout = Rollout(device, windows.tape, windows.states, shape(config))
    at = np.array([window_of[i] for i, _ in casts])
    # variants of one policy share one upload and its tables
    weights = {id(variant.policy): variant.policy.weights for _, variant in casts}
    skills = [variant.skills for _, variant in casts]
    out = greedy(
        rollout,
        [weights[id(variant.policy)] for _, variant in casts],
        windows.first[at, None],
        windows.steps[at],
        np.stack([entries[i].window.key for i, _ in casts]),
        base=windows.base[at],
        trace=True,
        skills=skills,
        slots=any(skills),
    )
    place = iter(range(len(casts)))
    for entry in entries:
        yield [
            play_calibrated(entry.window, variant)
            if entry.calibrates(variant)
            else played(entry.window, variant, out, next(place))
            for variant in entry.variants
        ]


def distinct_windows(entries: Sequence[Entry]) -> tuple[Windows, list[int]]:
    """Return the rows that entries see, each once, and each entry's window.

    Seeds of a fold see the same rows unless each has forecasts of its own.
    """
    places: dict[tuple[int, int], int] = {}
    window_of, rows = [], []
    for i, entry in enumerate(entries):
        policy = entry.variants[0].policy
        key = id(entry.window), i if policy.aux else -1
        if key not in places:
            places[key] = len(places)
            rows.append(entry.window.seen_by(policy))
        window_of.append(places[key])
    return Windows.joined(rows), window_of


def played(window: OutOfSample, variant: Variant, out: Trajectories, place: int) -> Played:
    """Return one episode of a launch, with its account."""
    assert out.trace is not None
    rows = slice(0, window.steps)
    # a copy, so that the launch's arrays are given back
    trace, action = out.trace[rows, place].copy(), out.action[rows, place].copy()
    slots = None if variant.skills is None or out.slots is None else out.slots[rows, place].copy()
    return Played(
        variant,
        window.episode(trace, action[:, 2]),
        action,
        slots,
    )


def play_calibrated(window: OutOfSample, variant: Variant) -> Played:
    """Play one variant bar by bar while copies of its banks turn their directions (ONLINE)."""
    import torch

    from backtest.agent.skills.online import play_online

    torch.set_num_threads(1)  # so that a result does not depend on the number of cores
    config, fold = window.config, window.market.fold
    tape, state = window.seen_by(variant.policy)
    actor = Actor.of(config, variant.policy, window.instrument, fold.key, window.device)
    alpha = {name: variant.entry["alpha"][name] for name in variant.banks}
    out = play_online(
        actor.network, variant.banks, alpha, tape, state, config.learner, config.skills.bank
    )
    return Played(variant, window.episode(out.trace, out.action[:, 2]), out.action, out.slots)
