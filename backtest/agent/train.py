"""Training of one policy on one fold: collect, update, validate, epoch by epoch."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial

import numpy as np
import torch

from backtest.agent import schedule, streams, training_state
from backtest.agent.aux_verdict import epoch_figures
from backtest.agent.dueling import greedy
from backtest.agent.kinds import Weights, export_weights
from backtest.agent.plan import Plan
from backtest.agent.protocols import Collector, Evaluator, Score
from backtest.agent.result import Checkpoint, Curve, DivergenceError, StoppedError, Trained
from backtest.agent.support import EDGE_LIMIT, WIDENING, measure_range
from backtest.agent.training_state import TrainingState
from backtest.agent.updates import Updates
from backtest.market.layout import BRANCHES

ENTROPY_STATES = 4096  # newest states on which the greedy actions are counted


Scores = tuple[Score, Score]  # of the train and the validation window
Run = Generator[Weights, Scores, Trained]


def train_fold(plan: Plan, collector: Collector, evaluator: Evaluator) -> Trained:
    """Train one policy; see `training`, whose weights the evaluator plays."""

    def evaluate(asked: Mapping[int, Weights]) -> dict[int, Scores]:
        return {
            i: (evaluator.evaluate(w, "train"), evaluator.evaluate(w, "validation"))
            for i, w in asked.items()
        }

    (trained,) = train_together([training(plan, collector)], evaluate)
    return trained


def train_together(
    runs: Sequence[Run], evaluate: Callable[[Mapping[int, Weights]], Mapping[int, Scores]]
) -> list[Trained]:
    """Advance runs side by side, an epoch each, so that one call evaluates all their weights.

    Args:
        runs: of `training`.
        evaluate: returns the scores of weights, by the run's place.

    Raises:
        Exception: what the first run that fails raises; the others resume from their state files.
    """
    done: dict[int, Trained] = {}
    scores: Mapping[int, Scores | None] = dict.fromkeys(range(len(runs)))
    while scores:
        asked: dict[int, Weights] = {}
        for i, known in scores.items():
            try:
                asked[i] = next(runs[i]) if known is None else runs[i].send(known)
            except StopIteration as end:
                done[i] = end.value
        scores = evaluate(asked) if asked else {}
    return [done[i] for i in range(len(runs))]


def training(plan: Plan, collector: Collector) -> Run:
    """Train one policy; the same plan and collector give the same bits on the same device.

    An epoch is one collection, its share of the updates, and one greedy evaluation of the train
    and the validation window. The first collection explores fully and sets the range of returns.
    The best epoch by validation Sharpe is kept (None counts as -inf, ties keep the earlier).

    Args:
        plan: rows, settings, seed; its `state_file` makes the run resumable.
        collector: plays episodes on the train window.

    Yields:
        The weights of each epoch; their scores are sent back.

    Raises:
        DivergenceError: loss or gradient not finite; carries the last good checkpoint.
        StoppedError: the stop flag was raised; run again to resume from `state_file`.
        DataError: the collector returned foreign bars or non-finite numbers.
        StoreError: `state_file` is damaged.
    """
    state = None
    if plan.state_file is not None:
        state = training_state.resume(plan.state_file, plan)
    if state is None:
        state = training_state.begin(plan)
    updates = Updates(state.learner, state.replay, plan.seed, plan.stream, streams.Stage.REPLAY)
    while not state.finished:
        yield from _epoch(state, updates, collector)
        if plan.state_file is not None:
            training_state.save(plan.state_file, state)
    trained = state.trained()
    assert trained is not None  # at least one epoch ran
    if plan.state_file is not None:
        plan.state_file.unlink(missing_ok=True)
    return trained


def _epoch(
    state: TrainingState, updates: Updates, collector: Collector
) -> Generator[Weights, Scores, None]:
    """Run one epoch and append its row to the curves."""
    plan, learner, epoch = state.plan, state.learner, state.epoch
    settings = plan.learner
    _check_stop(state)
    epsilon = schedule.round_epsilon(settings, epoch)
    clock = time.perf_counter()
    experience = collector.collect(learner.online.weights(learner.v_max), epoch, epsilon)
    collect_seconds = time.perf_counter() - clock
    experience.check(plan.first_bar, plan.stop_bar)
    if epoch == 0:
        v_max = settings.v_max or measure_range(experience, settings.n_step, settings.gamma)
        learner.set_range(v_max)
        state.replay.scale = v_max
    collected = state.replay.insert(experience, settings.n_step, settings.gamma, epoch)
    state.steps += experience.steps

    clock = time.perf_counter()
    figures = _updates(state, updates)
    update_seconds = time.perf_counter() - clock
    loss, q_mean, edge = figures.mean(0)[:3].tolist() if len(figures) else (None, None, 0.0)

    parameters = learner.online.numpy_state()
    weights = export_weights(parameters, plan.network, learner.v_max)
    train, validation = yield weights
    best = state.best
    if best is None or schedule.better(validation.sharpe, best.validation.sharpe):
        state.best = Checkpoint(
            parameters,
            plan.network,
            learner.v_max,
            epoch,
            learner.updates,
            validation,
            train,
        )
    row: Curve = {
        "epoch": epoch,
        "loss": loss,
        "q_mean": q_mean,
        "epsilon": epsilon,
        "train_sharpe": train.sharpe,
        "validation_sharpe": validation.sharpe,
        **_entropies(state, collected),
        **_aux_figures(state, collected, validation),
        "steps_per_s": experience.steps / collect_seconds,
        "updates_per_s": len(figures) / update_seconds,
        "steps": state.steps,
        "updates": learner.updates,
        "v_max": learner.v_max,
        "edge_mass": edge,
    }
    state.curves.append(row)
    state.edge_mass = edge
    state.epoch += 1
    _check_range(state)
    plan.progress(learner.updates, settings.updates, row)


def _updates(state: TrainingState, updates: Updates) -> np.ndarray:
    """Take the epoch's updates; return float32[updates, 4] (see `Update.figures`)."""
    plan, settings = state.plan, state.plan.learner
    start, stop = schedule.round_updates(settings, state.epoch)

    def before() -> None:
        _check_stop(state)
        if state.learner.updates > start:
            plan.progress(state.learner.updates, settings.updates, None)

    rows = [np.zeros((0, 4), np.float32)]
    for figures in updates.take(start, stop, partial(schedule.beta, settings), before):
        if not np.isfinite(figures).all():
            _diverged(state, start + sum(map(len, rows)), figures)
        rows.append(figures)
    if not state.learner.finite:  # the last step itself overflowed
        _diverged(state, stop - 1, np.full((1, 4), np.nan))
    if stop > start:
        plan.progress(state.learner.updates, settings.updates, None)
    return np.concatenate(rows)


def _diverged(state: TrainingState, first: int, figures: np.ndarray) -> None:
    place = int(np.argwhere(~np.isfinite(figures))[0][0])
    loss, _, _, norm = figures[place]
    best = state.best
    kept = "there is no checkpoint yet" if best is None else f"epoch {best.epoch} is kept"
    raise DivergenceError(
        f"seed {state.plan.seed}, epoch {state.epoch}, update {first + place}: loss {loss:g}, "
        f"gradient norm {norm:g}; {kept}. Lower learner.learning_rate or learner.gradient_clip",
        state.trained(),
    )


def _check_stop(state: TrainingState) -> None:
    plan = state.plan
    if not plan.stop():
        return
    resume = "nothing is saved, the next run starts from epoch 0"
    if plan.state_file is not None and state.epoch:
        resume = f"run again to resume from {plan.state_file}"
    raise StoppedError(
        f"seed {plan.seed}: stopped in epoch {state.epoch} of {plan.learner.epochs}; {resume}"
    )


def _check_range(state: TrainingState) -> None:
    """Widen the range once when its edges hold too much of the targets; the next time, fail.

    A range that the user gave is never widened.
    """
    settings = state.plan.learner
    if state.edge_mass <= EDGE_LIMIT:
        return
    if state.widened or settings.v_max is not None:
        state.range_failed = True
    elif not state.finished:
        state.learner.widen_range(WIDENING)
        state.widened = True


@torch.no_grad()
def _aux_figures(state: TrainingState, collected: int, validation: Score) -> Curve:
    """Return what the aux verdict needs of the epoch, on the same states as the entropies."""
    states = state.replay.newest(min(collected, ENTROPY_STATES), collected)
    return epoch_figures(state.learner, states, validation)


@torch.no_grad()
def _entropies(state: TrainingState, collected: int) -> Curve:
    """Return the entropy (nats) of the greedy action over the newest states, per branch."""
    learner = state.learner
    states = state.replay.newest(min(collected, ENTROPY_STATES), collected)
    q = learner.online.q_values(states, learner.branches)
    action = greedy(q, learner.branches).cpu().numpy()
    row: Curve = {f"entropy_{name}": 0.0 for name in BRANCHES}  # a fixed branch has none
    for column, branch in enumerate(learner.branches):
        share = np.bincount(action[:, column]) / len(action)
        share = share[share > 0]
        row[f"entropy_{tuple(BRANCHES)[branch]}"] = float(-(share * np.log(share)).sum())
    return row
