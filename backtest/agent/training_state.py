"""A training run between two epochs: everything needed to continue it bit for bit, and its file.

Draws of the replay depend on the update's number alone, so there is no generator state to keep.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from backtest.agent import schedule, streams, tensor_file
from backtest.agent.learner import C51Learner
from backtest.agent.plan import Plan
from backtest.agent.protocols import Score
from backtest.agent.replay import Replay
from backtest.agent.result import Checkpoint, Curve, Trained
from backtest.errors import StoreError

KIND = "skillwalk.training"
VERSION = 3
_SCALARS = ("epoch", "steps", "edge_mass", "widened", "range_failed")


@dataclass
class TrainingState:
    """Learner, replay and bookkeeping after `epoch` epochs."""

    plan: Plan
    learner: C51Learner
    replay: Replay
    epoch: int = 0
    steps: int = 0  # decisions collected
    edge_mass: float = 0.0  # of the last epoch
    widened: bool = False
    range_failed: bool = False
    best: Checkpoint | None = None
    curves: list[Curve] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        """All epochs done, or `patience` epochs without a better validation Sharpe."""
        settings = self.plan.learner
        if self.epoch >= settings.epochs:
            return True
        return self.best is not None and schedule.exhausted(
            settings, self.epoch - 1, self.best.epoch
        )

    def trained(self) -> Trained | None:
        """Return the result so far; None before the first checkpoint."""
        if self.best is None:
            return None
        return Trained(
            best=self.best,
            weights=self.best.weights,
            curves=self.curves,
            v_max=self.best.v_max,
            edge_mass=self.edge_mass,
            range_failed=self.range_failed,
            steps=self.steps,
            updates=self.learner.updates,
            bypass=self.learner.bypass_moments(),
        )


def begin(plan: Plan) -> TrainingState:
    """Return the state before the first epoch: fresh networks, an empty replay."""
    settings = plan.learner
    rng = streams.generator(plan.seed, plan.stream, streams.Stage.WEIGHTS)
    learner = C51Learner(
        plan.network,
        settings,
        rng,
        plan.device,
        forecaster=plan.forecaster,
        bypass=plan.bypass,
    )
    replay = Replay(
        settings.replay_rows,
        plan.bar_part,
        plan.first_bar,
        plan.device,
        alpha=settings.per_alpha,
        prioritised=settings.replay == "prioritised",
        stack_size=plan.network.stack_size if plan.network.kind == "scenario" else 1,
        context=learner.online.context,
    )
    return TrainingState(plan, learner, replay)


def save(path: Path, state: TrainingState) -> None:
    """Write the state atomically."""
    arrays: tensor_file.Arrays = {}

    def put(prefix: str, values: dict[str, Any]) -> None:
        arrays.update({f"{prefix}.{name}": np.asarray(value) for name, value in values.items()})

    learner = state.learner
    put("online", learner.online.numpy_state())
    put("target", learner.target.numpy_state())
    for place, moments in learner.optimiser.state_dict()["state"].items():
        put(f"adam.{place}", {k: value.cpu().numpy() for k, value in moments.items()})
    put("replay", state.replay.state())
    metadata: dict[str, Any] = {name: getattr(state, name) for name in _SCALARS}
    metadata |= {
        "identity": state.plan.identity,
        "updates": learner.updates,
        "v_max": learner.v_max,
        "curves": state.curves,
    }
    best = state.best
    if best is not None:
        put("best", best.state)
        metadata["best"] = {"v_max": best.v_max, "epoch": best.epoch, "update": best.update}
        for name in ("validation", "train"):
            score = asdict(getattr(best, name))
            put(f"score.{name}", {"returns": score.pop("returns")})
            metadata["best"][name] = score
    tensor_file.write(path, KIND, VERSION, arrays, metadata)


def resume(path: Path, plan: Plan) -> TrainingState | None:
    """Return the saved state of the same plan, or None when there is none to continue.

    A file of another plan (other settings, rows or seed) is not used; the next save replaces it.

    Raises:
        StoreError: the file is truncated, damaged or of another version; nothing was changed.
    """
    if not path.exists():
        return None
    arrays, metadata = tensor_file.read(path, KIND, VERSION)
    if metadata["identity"] != plan.identity:
        return None
    try:
        return _restore(plan, arrays, metadata)
    except (KeyError, RuntimeError, ValueError) as error:
        raise StoreError(
            f"{path}: does not fit this plan's learner ({error}); delete it to train from the start"
        ) from None


def _restore(plan: Plan, arrays: tensor_file.Arrays, metadata: dict[str, Any]) -> TrainingState:
    def get(prefix: str) -> dict[str, np.ndarray]:
        start = f"{prefix}."
        return {k.removeprefix(start): v for k, v in arrays.items() if k.startswith(start)}

    state = begin(plan)
    learner = state.learner
    learner.set_range(metadata["v_max"])
    learner.updates = metadata["updates"]
    learner.target.load_numpy(get("target"))
    learner.new_target_head()
    learner.online.load_numpy(get("online"))
    moments: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in get("adam").items():
        place, name = key.split(".")
        moments.setdefault(int(place), {})[name] = torch.from_numpy(value)
    groups = learner.optimiser.state_dict()["param_groups"]
    learner.optimiser.load_state_dict({"state": moments, "param_groups": groups})
    state.replay.restore(get("replay"))
    for name in _SCALARS:
        setattr(state, name, metadata[name])
    state.curves = metadata["curves"]
    if "best" in metadata:
        best = metadata["best"]
        validation, train = (
            Score(**best.pop(name), returns=arrays[f"score.{name}.returns"])
            for name in ("validation", "train")
        )
        state.best = Checkpoint(
            get("best"), plan.network, validation=validation, train=train, **best
        )
    return state
