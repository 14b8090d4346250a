"""What a training run is made of: its specification, rows, foundation, plan and collector."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from backtest import identity, rng
from backtest.agent.experience import Experience
from backtest.agent.foundation import (
    Foundation,
    bypass_mode,
    lay_foundation,
    needed,
    open_foundation,
)
from backtest.agent.plan import Plan
from backtest.agent.schedule import round_epsilon
from backtest.config import Config
from backtest.experiment import Experiment
from backtest.lake import Lake
from backtest.market.layout import Array
from backtest.market.tape import Tape
from opencl.collector import DeviceCollector
from opencl.devices import Device
from opencl.exchange import torch_device
from opencl.fold_rows import FoldRows, fold_rows
from opencl.rollout import Rollout, Shape, collection_variant


@dataclass(frozen=True)
class TrainSpec:
    """What to train; plain values only."""

    config: Config
    lake: Path
    instrument: str
    fold_key: str
    seed: int
    run_id: str

    @cached_property
    def experiment(self) -> Experiment:
        """The study on its lake."""
        return Experiment(self.config, Lake(self.lake))

    @cached_property
    def fold_id(self) -> str:
        """Identity of the fold, of every status."""
        fold = self.experiment.fold(self.instrument, self.fold_key)
        return self.experiment.fold_id(self.instrument, fold)

    @property
    def folder(self) -> Path:
        """Where the policies of the fold are."""
        return self.experiment.lake.policies(
            self.experiment.study_id, self.instrument, self.fold_key, self.fold_id
        )

    @property
    def stream(self) -> int:
        """What separates the random numbers of folds."""
        return rng.hash32(f"{self.instrument}|{self.fold_key}")

    def made_by(self, device: Device) -> str:
        """Return the identity of what this fold and seed make on a device."""
        variant = collection_variant(device, shape(self.config), self.config.runtime.precision)
        parts = [self.fold_id, self.seed, device.platform, device.name, variant]
        return identity.digest(identity.canonical(parts))


def shape(config: Config) -> Shape:
    """Return what rollout programs of this configuration are specialised to."""
    network, branches = config.network, config.learner.branches
    if network.kind == "mlp":
        return Shape(network.hidden, network.atoms, branches)
    slots = config.skills.bank.slots or network.scenarios
    return Shape(
        network.hidden,
        network.atoms,
        branches,
        kind="scenario",
        scenarios=network.scenarios,
        horizon=network.horizon,
        latent=network.latent,
        stack_size=network.stack_size,
        top_k=network.top_k,
        slots=slots if config.skills.banks else 0,
    )


def exploring_collection(spec: TrainSpec, device: Device) -> tuple[Experience, Tape]:
    """Collect the first round of a seed: untrained weights, every action at random.

    Reads the files of the train windows and no other. `train_seed` begins with the same round;
    its summary holds the `digest` of it as `first_round`.

    Returns:
        The experience, and the tape it was collected on.
    """
    from backtest.agent.training_state import begin

    rows = fold_rows(spec.experiment, spec.instrument, spec.fold_key, validation=False)
    foundation = foundation_of(spec, rows, device)
    tape, state = rows.train(foundation)
    start = begin(plan_of(spec, tape, state, foundation, device))
    weights = start.learner.online.weights(start.learner.v_max)
    rollout = Rollout(device, tape, state, shape(spec.config))
    epsilon = round_epsilon(spec.config.learner, 0)
    return collector_of(spec, device, rollout).collect(weights, 0, epsilon), tape


def foundation_of(spec: TrainSpec, rows: FoldRows, device: Device) -> Foundation | None:
    """Return what stage 0 left of this fold and seed, made here where nobody did before."""
    if not needed(spec.config):
        return None

    def lay() -> Foundation:
        train = rows.market.learning
        return lay_foundation(
            spec.config,
            rows.table.slice(train.start, train.stop),
            rows.train(None)[1],
            tick_size=rows.market.instrument.tick_size,
            seed=spec.seed,
            stream=spec.stream,
            device=torch_device(device),
        )

    path = spec.folder / f"foundation_{spec.seed}.safetensors"
    return open_foundation(path, spec.made_by(device), lay)


def fold_windows(
    spec: TrainSpec, device: Device
) -> tuple[Foundation | None, dict[str, tuple[Tape, Array]]]:
    """Return a fold's foundation, and its collection and validation windows by name."""
    rows = fold_rows(spec.experiment, spec.instrument, spec.fold_key)
    foundation = foundation_of(spec, rows, device)
    windows = {
        "collection": rows.collected(foundation),
        "validation": rows.validation(foundation),
    }
    return foundation, windows


def plan_of(
    spec: TrainSpec, tape: Tape, state: Array, foundation: Foundation | None, device: Device
) -> Plan:
    """Return the plan that trains a seed on a tape and its states float32[n, 115]."""
    return Plan(
        bar_part=state,
        first_bar=tape.start,
        learner=spec.config.learner,
        network=spec.config.network,
        seed=spec.seed,
        stream=spec.stream,
        forecaster=foundation.forecaster if foundation else None,
        bypass=bypass_mode(spec.config.aux),
        config_hash=spec.experiment.study_id,
        device=torch_device(device),
    )


def collector_of(
    spec: TrainSpec, device: Device, train: Rollout, learner: str = "cpu"
) -> DeviceCollector:
    """Return the collector; its rollout alone may play in bf16. learner: its torch device."""
    key, settings = rng.key(spec.seed, spec.instrument, spec.fold_key), spec.config.learner
    variant = collection_variant(device, train.made.shape, spec.config.runtime.precision)
    rollout = train.as_variant(variant)
    return DeviceCollector(rollout, key, settings.envs, settings.episode_steps, learner)
