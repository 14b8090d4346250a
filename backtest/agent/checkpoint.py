"""A trained policy on disk: parameters, value range, scaler, price base, and where it came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from backtest.agent import tensor_file
from backtest.agent.foundation import Foundation, of_arrays
from backtest.agent.kinds import Weights, export_weights, shapes
from backtest.agent.weights import Floats, check_shapes
from backtest.config import Network
from backtest.errors import StoreError

KIND = "skillwalk.policy"
VERSION = 2


@dataclass(frozen=True)
class Policy:
    """Everything that is needed to use a policy on bars it has not seen."""

    state: dict[str, Floats]  # the network's parameters by name
    network: Network
    branches: tuple[str, ...]  # learned branches; the others are fixed
    v_max: float  # reward units; v_min = -v_max
    center: npt.NDArray[np.float64]  # [42], scaler of the market features, train rows
    scale: npt.NDArray[np.float64]  # [42]
    base: float  # points, close[train.start], the price base of every use of the fold
    seed: int
    config_hash: str
    epoch: int
    update: int
    steps: int  # decisions collected
    labels: dict[str, str]  # instrument, fold_key, fold_id, run_id, device: for people
    aux: dict[str, Floats] = field(default_factory=dict)  # the direction forecaster, by name

    @property
    def weights(self) -> Weights:
        """The kernel's view of it."""
        return export_weights(self.state, self.network, self.v_max)

    @property
    def foundation(self) -> Foundation:
        """What a policy keeps of its foundation: enough for bars it has not seen."""
        return of_arrays(self.aux)


def save_policy(path: Path, policy: Policy) -> str:
    """Write a policy atomically and return its weight hash."""
    weight_hash = policy.weights.weight_hash
    arrays = {f"network.{name}": array for name, array in policy.state.items()}
    arrays |= {f"aux.{name}": array for name, array in policy.aux.items()}
    arrays["scaler.center"] = np.asarray(policy.center, np.float64)
    arrays["scaler.scale"] = np.asarray(policy.scale, np.float64)
    metadata = {
        "network": policy.network.model_dump(mode="json"),
        "branches": list(policy.branches),
        "v_min": -policy.v_max,
        "v_max": policy.v_max,
        "base": policy.base,
        "seed": policy.seed,
        "config_hash": policy.config_hash,
        "weight_hash": weight_hash,
        "epoch": policy.epoch,
        "update": policy.update,
        "steps": policy.steps,
        "labels": policy.labels,
    }
    tensor_file.write(path, KIND, VERSION, arrays, metadata)
    return weight_hash


def load_policy(
    path: Path, *, network: Network | None = None, config_hash: str | None = None
) -> Policy:
    """Read a policy.

    Args:
        path: a file of `save_policy`.
        network: refuse a policy of another shape when given.
        config_hash: refuse a policy of another experiment when given.

    Raises:
        StoreError: missing, truncated, damaged, of another version, shape or experiment.
    """
    arrays, metadata = tensor_file.read(path, KIND, VERSION)
    try:
        # JSON has lists where the section has tuples
        found = Network.model_validate(metadata["network"], strict=False)
    except ValueError:
        raise StoreError(
            f"{path}: this release does not know its network {metadata['network']}; use the "
            "release that trained it"
        ) from None
    state = _named(arrays, "network.")
    wanted = network or found
    wrong = check_shapes(state, shapes(wanted)) if found.kind == wanted.kind else []
    if found != wanted or wrong:
        clauses = "; ".join(wrong or _differences(found, wanted))
        raise StoreError(f"{path}: a policy of another shape: {clauses}; set [network] to match")
    if config_hash is not None and metadata["config_hash"] != config_hash:
        raise StoreError(
            f"{path}: trained under config {metadata['config_hash'][:12]}, not {config_hash[:12]}; "
            "train it again under this configuration"
        )
    policy = Policy(
        state=state,
        network=found,
        branches=tuple(metadata["branches"]),
        v_max=metadata["v_max"],
        center=arrays["scaler.center"],
        scale=arrays["scaler.scale"],
        base=metadata["base"],
        seed=metadata["seed"],
        config_hash=metadata["config_hash"],
        epoch=metadata["epoch"],
        update=metadata["update"],
        steps=metadata["steps"],
        labels=metadata["labels"],
        aux=_named(arrays, "aux."),
    )
    if policy.weights.weight_hash != metadata["weight_hash"]:
        raise StoreError(
            f"{path}: its weights do not fold to the recorded hash; it was written by other code, "
            "train it again"
        )
    return policy


def _named(arrays: tensor_file.Arrays, prefix: str) -> dict[str, Floats]:
    """Return the arrays whose names start with a prefix, by the rest of the name."""
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def _differences(found: Network, wanted: Network) -> list[str]:
    """Return one clause for each key of [network] that differs."""
    other = wanted.model_dump()
    return [
        f"{key} is {value}, expected {other[key]}"
        for key, value in found.model_dump().items()
        if value != other[key]
    ]
