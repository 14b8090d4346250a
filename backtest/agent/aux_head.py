"""The direction forecaster of stage 0: will the close be higher K bars ahead? Frozen afterwards.

aux = 2p - 1 of a small network of its own on slots 0-111. Train rows get out-of-fold forecasts,
otherwise the policy would learn to trust a forecaster that has seen the answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from backtest.agent import streams
from backtest.agent.weights import Floats
from backtest.config import Aux
from backtest.errors import DataError
from backtest.features.prices import forward_adjusted
from backtest.features.table import FeatureTable

INPUTS = 112  # slots 0-111: market, slow, differences; the first columns of a state's bar part
BLOCKS = 5  # of the train rows; the first has no rows before it and gets 0
LEAST_ROWS = 32  # with fewer labelled rows there is no forecast: 0
# Over its rows by one head. More passes over few rows learn them by heart: on eight years of days
# (S&P) the log loss out of fold is 0.94 after all 300 updates, 0.685 after ten passes.
MOST_PASSES = 10
_ROWS = 4096  # forecast at a time, so that the hidden layer stays in the cache


@dataclass(frozen=True)
class AuxHead:
    """The frozen forecaster: 112 -> hidden -> 1, ReLU; all zero forecasts 0 everywhere."""

    first_weight: Floats  # [hidden, 112]
    first_bias: Floats  # [hidden]
    logit_weight: Floats  # [hidden]
    logit_bias: Floats  # [1]

    @classmethod
    def silent(cls, hidden: int) -> AuxHead:
        """Return a head that forecasts 0."""
        shapes = ((hidden, INPUTS), (hidden,), (hidden,), (1,))
        return cls(*(np.zeros(shape, np.float32) for shape in shapes))

    @property
    def arrays(self) -> dict[str, Floats]:
        """The parameters by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def forecast(self, states: Floats) -> Floats:
        """Return aux in [-1, 1], float32[n].

        Sums run in float32 over inputs and then neurons, in order, so a row's forecast does not
        depend on the rows beside it.

        Args:
            states: float32[n, >= 112]; columns 0-111 are the slots 0-111.
        """
        logit = np.empty(len(states), np.float32)
        for first in range(0, len(states), _ROWS):
            columns = np.ascontiguousarray(states[first : first + _ROWS, :INPUTS].T)
            hidden = np.repeat(self.first_bias[:, None], columns.shape[1], axis=1)
            term = np.empty_like(hidden)
            for weight, column in zip(self.first_weight.T, columns, strict=True):
                np.multiply(weight[:, None], column, out=term)
                hidden += term
            np.maximum(hidden, np.float32(0), out=hidden)
            total = np.full(columns.shape[1], self.logit_bias[0], np.float32)
            for weight, neuron in zip(self.logit_weight, hidden, strict=True):
                total += weight * neuron
            logit[first : first + _ROWS] = total
        # 2*sigmoid(x) - 1
        return np.tanh(logit.astype(np.float64) / 2).astype(np.float32)


@dataclass(frozen=True)
class AuxFit:
    """What fitting on train rows leaves; n train rows."""

    head: AuxHead  # of all train rows
    train: Floats  # [n], out-of-fold forecasts
    labels: Floats  # [n], see `labels`
    shuffled: Floats  # [n], out-of-fold forecasts of the control
    shuffled_labels: Floats  # [n], what the control was fitted to


@contextmanager
def single_thread() -> Iterator[None]:
    """Let torch use one thread, so that a result does not depend on the number of cores."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def labels(train: FeatureTable, horizon: int, tick_size: float) -> Floats:
    """Return 1 where the close is higher `horizon` bars ahead, 0 where lower, float32[n].

    Closes without roll gaps. Within half a tick the price has not moved: such a tie counts half up,
    half down (0.5), so that 2p - 1 is P(up) - P(down) and a market that often stands still does
    not look like a falling one. The last `horizon` rows, whose labels lie behind the rows given,
    are NaN.

    Args:
        train: the train rows and nothing else.
        horizon: K, bars.
        tick_size: points.
    """
    close = forward_adjusted(train.open, train.high, train.low, train.close, train.roll).close
    out = np.full(len(close), np.nan, np.float32)
    move = close[horizon:] - close[:-horizon]
    out[: len(move)] = np.where(np.abs(move) < tick_size / 2, 0.5, move > 0)
    return out


def edges(rows: int) -> list[int]:
    """Return where the contiguous blocks of the train rows begin, and the end: 6 row numbers."""
    return [rows * block // BLOCKS for block in range(BLOCKS + 1)]


def fit(states: Floats, target: Floats, settings: Aux, *, seed: int = 0, stream: int = 0) -> AuxFit:
    """Fit the head of all rows, the out-of-fold heads, and those of the shuffled control.

    Block j is forecast by a head of the rows before it whose labels end before it (K bars purged);
    block 0 gets 0. The control goes the same way with the labels in random order: whatever it
    still forecasts, it has seen.

    Args:
        states: float32[n, >= 112] of the train rows; columns 0-111 are the slots 0-111.
        target: float32[n] of `labels`.
        settings: K, width and budget.
        seed: the run's.
        stream: hash32 of "instrument|fold key".

    Raises:
        DataError: rows and labels differ in number.
    """
    n = len(states)
    if target.shape != (n,):
        raise DataError(f"aux: {len(target)} labels for {n} train rows")
    starts = edges(n)
    labelled = max(n - settings.horizon, 0)
    mixed = target.copy()
    order = streams.generator(seed, stream, streams.Stage.AUX, 2 * BLOCKS).permutation(labelled)
    mixed[:labelled] = target[order]
    before = [start - settings.horizon for start in starts[1:BLOCKS]]
    # the place in the list is the stream's index: one head needs no other to be the same again
    jobs = [(rows, target) for rows in (*before, labelled)] + [(rows, mixed) for rows in before]
    heads = fit_heads(states, jobs, settings, seed, stream)

    def out_of_fold(models: Sequence[AuxHead]) -> Floats:
        out = np.zeros(n, np.float32)
        for model, start, stop in zip(models, starts[1:], starts[2:], strict=False):
            out[start:stop] = model.forecast(states[start:stop])
        return out

    blocks = BLOCKS - 1
    return AuxFit(
        head=heads[blocks],
        train=out_of_fold(heads[:blocks]),
        labels=target,
        shuffled=out_of_fold(heads[BLOCKS:]),
        shuffled_labels=mixed,
    )


def fit_heads(
    states: Floats,
    jobs: Sequence[tuple[int, Floats]],
    settings: Aux,
    seed: int,
    stream: int,
) -> list[AuxHead]:
    """Fit several heads side by side by cross-entropy: Adam with L2, on the CPU, on one thread.

    The logit's weights start at zero: an unfitted head forecasts 0. A head of few rows takes fewer
    updates, `MOST_PASSES` over its rows.

    Args:
        states: float32[n, >= 112].
        jobs: for each head how many of the first rows it may see, and targets float32[n].
        settings: width and budget.
        seed: the run's.
        stream: hash32 of "instrument|fold key".
    """
    heads = [AuxHead.silent(settings.hidden) for _ in jobs]
    large = [place for place, (rows, _) in enumerate(jobs) if rows >= LEAST_ROWS]
    if not large:
        return heads
    tasks = []
    for place in large:
        rows, target = jobs[place]
        random = streams.generator(seed, stream, streams.Stage.AUX, place)
        # He 2015
        first = random.standard_normal((INPUTS, settings.hidden)) * (2 / INPUTS) ** 0.5
        updates = min(settings.updates, max(MOST_PASSES * rows // settings.batch, 1))
        draws = random.integers(0, rows, (updates, settings.batch))
        tasks.append(_Task(target, first.astype(np.float32), draws))
    for place, head in zip(large, _descend(states, tasks, settings), strict=True):
        heads[place] = head
    return heads


@dataclass(frozen=True)
class _Task:
    """One head to fit."""

    target: Floats  # [n]
    first: Floats  # [112, hidden], initial weights
    draws: npt.NDArray[np.int64]  # [updates, batch], rows of each minibatch


def _descend(states: Floats, tasks: Sequence[_Task], settings: Aux) -> list[AuxHead]:
    """Take all updates of all heads; each is read when its own are done."""
    import torch

    count, hidden = len(tasks), settings.hidden
    done: list[AuxHead | None] = [None] * count
    with single_thread():
        inputs = torch.from_numpy(np.ascontiguousarray(states[:, :INPUTS]))
        targets = [torch.from_numpy(task.target) for task in tasks]
        w1 = torch.from_numpy(np.stack([task.first for task in tasks])).requires_grad_(True)
        w2 = torch.zeros(count, hidden, 1, requires_grad=True)
        b1 = torch.zeros(count, 1, hidden, requires_grad=True)
        b2 = torch.zeros(count, 1, 1, requires_grad=True)
        # in the gradient, not decoupled: at this budget decoupled decay does nothing (AR(1) 0.3:
        # AUC 0.508 and a spread of 0.23 with it, 0.514 and 0.13 so)
        optimiser = torch.optim.Adam(
            [
                {"params": [w1, w2], "weight_decay": settings.weight_decay},
                {"params": [b1, b2], "weight_decay": 0.0},
            ],
            lr=settings.learning_rate,
            fused=True,
        )
        for update in range(max(len(task.draws) for task in tasks)):
            # a head that is done goes on with its last rows; nobody reads it any more
            drawn = [task.draws[min(update, len(task.draws) - 1)] for task in tasks]
            rows = torch.from_numpy(np.stack(drawn))
            x = inputs.index_select(0, rows.view(-1)).view(count, -1, INPUTS)
            y = torch.stack([target[row] for target, row in zip(targets, rows, strict=True)])
            inner = torch.relu(torch.baddbmm(b1, x, w1))
            logits = torch.baddbmm(b2, inner, w2)[..., 0]
            # the sum over heads of each head's mean: none feels another
            loss = count * torch.nn.functional.binary_cross_entropy_with_logits(logits, y)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            for i, task in enumerate(tasks):
                if update + 1 == len(task.draws):
                    parts = (w1[i].T, b1[i, 0], w2[i, :, 0], b2[i, 0])
                    done[i] = AuxHead(
                        *(np.ascontiguousarray(part.detach().numpy()).copy() for part in parts)
                    )
    return [head for head in done if head is not None]
