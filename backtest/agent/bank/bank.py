"""The skill bank, NumPy definition: contexts in, corrections out, learned from pseudo-residuals.

State is flat arrays (`backtest.agent.bank.state`); this class only ties functions on them together.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from backtest.agent import tensor_file
from backtest.agent.bank import context, freeze, lifecycle, storage, utility
from backtest.agent.bank.aggregation import gather
from backtest.agent.bank.ordered import norm, square
from backtest.agent.bank.retrieval import retrieve_rows
from backtest.agent.bank.rules import rules_of
from backtest.agent.bank.snapshot import ABSTAIN, Snapshot
from backtest.agent.bank.state import COUNTERS, UNFITTED_THRESHOLD, Array, BankState, Floats, empty
from backtest.agent.bank.update import NOTHING, Result, learn, turn_slot
from backtest.agent_sections import SkillBank
from backtest.config import describe
from backtest.errors import ConfigError, StoreError

Ints = npt.NDArray[np.int32]


class Bank:
    """N skills of one latent space.

    Contexts `h` are float32[K], pseudo-residuals `g` = -dL/dh float32[D] of one sample (the batch
    mean undone). Other numbers are converted to float32; another shape is a ValueError.
    """

    def __init__(
        self, slots: int, dim: int, *, key_dim: int | None = None, **parameters: Any
    ) -> None:
        """Start an empty bank.

        Args:
            slots: N.
            dim: D, of hidden states and corrections.
            key_dim: K, of contexts; None: D.
            parameters: fields of `backtest.agent_sections.SkillBank`.

        Raises:
            ConfigError: an unknown parameter or one out of range.
        """
        if min(dim, dim if key_dim is None else key_dim) < 1:
            raise ConfigError(f"skill bank: dim = {dim}, key_dim = {key_dim}: at least 1")
        try:
            self.section = SkillBank(**{**parameters, "slots": slots})
        except ValidationError as error:
            raise ConfigError(f"skill bank: {describe(error)}") from None
        self.slots, self.dim = slots, dim
        self.key_dim = dim if key_dim is None else key_dim
        self.rules = rules_of(self.section)
        self.state = self._empty()

    def _empty(self) -> BankState:
        section = self.section
        cells = section.aggregate_cells if section.aggregate > 1 else 0
        state = empty(self.slots, self.key_dim, self.dim, section.candidate_pool, cells)
        auto = section.similarity_threshold == "auto"
        state.threshold[...] = UNFITTED_THRESHOLD if auto else section.similarity_threshold
        return state

    @property
    def parameters(self) -> dict[str, Any]:
        """The keyword parameters that build a bank like this one."""
        return self.section.model_dump(exclude={"slots"})

    @property
    def blank(self) -> bool:
        """Whether it holds nothing of any weights: no skill, candidate or cell, no contexts."""
        s = self.state
        return not (s.used.any() or s.pool_used.any() or s.cell_used.any() or s.fitted)

    @property
    def counters(self) -> dict[str, int]:
        """What happened since the bank was made or cleared, by name."""
        return dict(zip(COUNTERS, self.state.counters.tolist(), strict=True))

    def fit_context(self, contexts: npt.ArrayLike, rng: np.random.Generator) -> None:
        """Take centre, cosine quantiles and automatic threshold from a first look at contexts.

        Args:
            contexts: float32[n, K], of the COLLECT pass, before any update.
            rng: draws 4,096 random pairs.

        Raises:
            ValueError: fewer than two finite contexts, or the bank is not empty.
        """
        contexts = self._floats(contexts, (-1, self.key_dim), "contexts")
        section = self.section
        mean, auto = section.centering == "mean", section.similarity_threshold == "auto"
        context.fit_context(self.state, contexts, rng, mean=mean, auto=auto)

    def snapshot(
        self, alpha: float | None = None, explore: bool = False, only: int | None = None
    ) -> Snapshot:
        """Return the bank as a rollout reads it.

        Args:
            alpha: strength of the corrections; None: the parameter's.
            explore: add the UCB term to the scores (EVALUATE).
            only: the one slot that may be retrieved, for solo rollouts; None: all.
        """
        strength = self.section.alpha if alpha is None else alpha
        return freeze.freeze(self.state, self.section, strength, explore=explore, only=only)

    def retrieve(
        self, h: npt.ArrayLike, mark: bool = False, explore: bool = False
    ) -> tuple[int, Floats]:
        """Return slot (MISS -1, ABSTAIN -2) and correction float32[D], zero without a slot.

        Args:
            h: float32[K].
            mark: count the use, the miss or the abstention; without it nothing changes.
            explore: add the UCB term.
        """
        query = self._floats(h, (self.key_dim,), "h")
        snapshot = self.snapshot(explore=explore)
        slot = int(retrieve_rows(snapshot, query[None])[0])
        if not mark:
            pass
        elif slot >= 0:
            one = np.arange(self.slots) == slot
            self.add_uses(one.astype(np.int64), one)
        else:
            self.state.count("abstentions" if slot == ABSTAIN else "misses")
        return slot, snapshot.shift[slot].copy() if slot >= 0 else np.zeros(self.dim, np.float32)

    def observe(self, h: npt.ArrayLike) -> int:
        """Return what `retrieve` would find for h float32[K]; changes nothing."""
        return self.retrieve(h)[0]

    def add_uses(
        self,
        uses: npt.NDArray[np.int64],
        retrieved: npt.NDArray[np.bool_],
        misses: int = 0,
        abstentions: int = 0,
    ) -> None:
        """Enter what a rollout that read a snapshot did.

        Args:
            uses: int64[N], episode-steps each slot was applied.
            retrieved: bool[N], slots applied at all.
            misses: queries that found no slot.
            abstentions: queries that abstained.
        """
        if uses.shape != (self.slots,):
            raise ValueError(f"uses has shape {list(uses.shape)}, not [{self.slots}]")
        self.state.uses += uses
        self.state.retrieved |= np.asarray(retrieved).astype(np.uint8)
        self.state.count("hits", int(uses.sum()))
        self.state.count("misses", misses)
        self.state.count("abstentions", abstentions)

    def update(self, h: npt.ArrayLike, g: npt.ArrayLike, h_norm: float | None = None) -> Result:
        """Learn from one observation; ticks when one is emitted.

        Args:
            h: float32[K].
            g: float32[D], -dL/dh of one sample.
            h_norm: |hidden state| where h is not the hidden state itself; None: |h|.

        Returns:
            The decision, and the slot of MATCH, FREE and EVICT (-1 otherwise). An input that is
            not finite, or that a cell swallows, is NONE.
        """
        h, g = self._floats(h, (self.key_dim,), "h"), self._floats(g, (self.dim,), "g")
        state = self.state
        state.count("rows")
        x = h - state.center
        xx, gg = square(x), square(g)
        size = norm(h) if h_norm is None else np.float32(h_norm)
        if not (np.isfinite(size) and np.isfinite(gg) and np.isfinite(xx)):
            state.count("non_finite")
            return NOTHING
        if gg > 0:
            state.h_count += 1
            state.h_mean += (size - state.h_mean) / np.float32(state.h_count)
        if self.rules.aggregate == 1:
            return learn(state, self.rules, x, g, xx, gg)
        emitted = gather(state, self.rules, x, g, xx)
        if emitted is None:
            return NOTHING
        return learn(state, self.rules, *emitted, square(emitted.x), square(emitted.g))

    def update_rows(
        self, h: npt.ArrayLike, g: npt.ArrayLike, h_norm: Floats | None = None
    ) -> tuple[Ints, Ints]:
        """Apply `update` to rows in order; return decisions and slots, int32[B] each.

        Args:
            h: float32[B, K].
            g: float32[B, D].
            h_norm: float32[B], see `update`.
        """
        h = self._floats(h, (-1, self.key_dim), "h")
        g = self._floats(g, (len(h), self.dim), "g")
        decisions, slots = np.empty(len(h), np.int32), np.empty(len(h), np.int32)
        for row in range(len(h)):
            size = None if h_norm is None else h_norm[row]
            decisions[row], slots[row] = self.update(h[row], g[row], size)
        return decisions, slots

    def tick(self) -> None:
        """Advance ages, protections and candidates' clocks by one emitted observation."""
        lifecycle.tick(self.state, self.rules)

    def close_collection(self) -> None:
        """Revive inactive skills and freeze norm_ref and h_ref; ends COLLECT."""
        lifecycle.close_collection(self.state, self.rules)

    def update_direction(self, slot: int, g: npt.ArrayLike) -> bool:
        """Turn the direction of a live slot towards g float32[D]; return whether it turned."""
        residual = self._floats(g, (self.dim,), "g")
        return turn_slot(self.state, self.rules, self._slot(slot), residual)

    def add_influence(self, slot: int, influence: float) -> None:
        """Add the influence of one application to the episode; not finite: refused, counted."""
        total = self.state.influence[self._slot(slot)]
        with np.errstate(over="ignore", invalid="ignore"):
            total = total + np.float32(influence)
        if np.isfinite(total):
            self.state.influence[slot] = total
        else:
            self.state.count("non_finite")

    def end_episode(self, delta: float) -> None:
        """Move utilities by the paired Delta of one episode (the bank's rule); clear influence."""
        utility.end_episode(self.state, self.rules, self.section.utility_rule, delta)

    def solo_round(self, deltas: npt.ArrayLike) -> None:
        """Move utilities by one round of solo rollouts, deltas float32[N, E] of `paired_delta`.

        A live slot whose 95 % interval lies below zero becomes INACTIVE.
        """
        utility.solo_round(self.state, self.rules, self._floats(deltas, (self.slots, -1), "deltas"))

    def reset_influence(self) -> None:
        """Forget the influence of the episode that runs."""
        self.state.influence[:] = 0

    def clear(self, contexts: bool = False) -> None:
        """Empty the bank; what it knows of contexts goes only with `contexts`."""
        old = self.state
        self.state = self._empty()
        if contexts:
            return
        for name in ("center", "quantiles", "fitted", "threshold"):
            getattr(self.state, name)[...] = getattr(old, name)

    def state_dict(self) -> dict[str, Array]:
        """Return copies of all arrays by name."""
        return {name: array.copy() for name, array in self.state.arrays().items()}

    def load_state_dict(self, arrays: Mapping[str, Array]) -> None:
        """Replace all arrays.

        Raises:
            StoreError: other names, shapes or dtypes, values not finite; nothing is changed.
        """
        self.state = BankState(**storage.checked(self.state, arrays, "state_dict"))

    def content_hash(self) -> str:
        """Return the SHA-256 (hex) over all arrays."""
        return tensor_file.content_hash(self.state.arrays())

    def save(self, path: Path | str, weight_hash: str) -> None:
        """Write the bank atomically; `weight_hash` is of the weights it was collected on."""
        dims = {"slots": self.slots, "dim": self.dim, "key_dim": self.key_dim}
        storage.save(Path(path), self.state, self.section, dims, weight_hash)

    @classmethod
    def load(
        cls,
        path: Path | str,
        weight_hash: str,
        *,
        slots: int | None = None,
        dim: int | None = None,
        key_dim: int | None = None,
    ) -> Bank:
        """Read a bank.

        Args:
            path: a file of `save`.
            weight_hash: of the weights it shall correct.
            slots: refuse a bank of other slots when given; so `dim`, `key_dim`.
            dim: D.
            key_dim: K.

        Raises:
            StoreError: missing, truncated, damaged, of another version, size or weights.
        """
        arrays, section, dims = storage.load(Path(path), weight_hash)
        wanted = {"slots": slots, "dim": dim, "key_dim": key_dim}
        wrong = [f"{k} {dims[k]}, not {v}" for k, v in wanted.items() if v not in (None, dims[k])]
        if wrong:
            raise StoreError(f"{path}: a bank of {'; '.join(wrong)}; collect it for this network")
        bank = cls(**dims, **section.model_dump(exclude={"slots"}))
        bank.state = BankState(**storage.checked(bank.state, arrays, str(path)))
        return bank

    def _slot(self, slot: int) -> int:
        if not 0 <= slot < self.slots:
            raise ValueError(f"slot {slot} is not one of the {self.slots} of this bank")
        return slot

    def _floats(self, array: npt.ArrayLike, shape: tuple[int, ...], name: str) -> Floats:
        """Return a float32 array of a shape, in which -1 is any length."""
        with np.errstate(over="ignore"):  # what overflows is refused as not finite
            result = np.asarray(array, np.float32)
        fits = result.ndim == len(shape) and all(
            want in (-1, n) for n, want in zip(result.shape, shape, strict=True)
        )
        if not fits:
            text = ", ".join("any" if want == -1 else str(want) for want in shape)
            raise ValueError(f"{name} has shape {list(result.shape)}, not [{text}]")
        return result
