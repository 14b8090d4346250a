"""An Actor with its skills on disk: network parameters, both banks, settings; one file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from backtest.agent import tensor_file
from backtest.agent.bank import Bank
from backtest.agent.bank.state import Array
from backtest.agent.bank.storage import checked
from backtest.agent.scenario.network import ScenarioNetwork
from backtest.agent.scenario_layout import scenario_shapes
from backtest.agent.scenario_weights import export_scenario
from backtest.agent.weights import Floats
from backtest.errors import StoreError

KIND = "skillwalk.actor"
VERSION = 1


@dataclass(frozen=True)
class ActorFile:
    """A checked file."""

    network: dict[str, Floats]  # parameters by name
    support: Floats  # [atoms], reward units
    banks: dict[str, dict[str, Array]]
    settings: dict[str, Any]


def weight_hash(network: ScenarioNetwork) -> str:
    """Return the hash of a network's weights, equal to that of the policy it came from."""
    return _hash(network, network.numpy_state(), network.support.cpu().numpy())


def _hash(network: ScenarioNetwork, state: Mapping[str, Floats], support: Floats) -> str:
    # the very atoms: a range made from the last of them could differ in a bit
    return replace(export_scenario(state, network.network, 1.0), z=support).weight_hash


def save(
    path: Path, network: ScenarioNetwork, banks: Mapping[str, Bank], settings: Mapping[str, Any]
) -> None:
    """Write everything atomically.

    Args:
        path: the file; its folder must exist.
        network: parameters and support are written.
        banks: by name.
        settings: anything JSON can hold.
    """
    arrays: dict[str, Array] = {f"network.{k}": v for k, v in network.numpy_state().items()}
    arrays["support"] = network.support.cpu().numpy()
    for name, bank in banks.items():
        arrays |= {f"{name}.{k}": v for k, v in bank.state.arrays().items()}
    metadata = {
        "network": network.network.model_dump(mode="json"),
        "banks": {name: bank.section.model_dump(mode="json") for name, bank in banks.items()},
        "weight_hash": weight_hash(network),
        "settings": dict(settings),
    }
    tensor_file.write(path, KIND, VERSION, arrays, metadata)


def load(path: Path, network: ScenarioNetwork, banks: Mapping[str, Bank]) -> ActorFile:
    """Read a file for this network and these banks; neither is changed.

    Raises:
        StoreError: missing, truncated, damaged, of another version, network or bank, or skills
            that were collected on other weights.
    """
    arrays, metadata = tensor_file.read(path, KIND, VERSION)

    def part(prefix: str) -> dict[str, Array]:
        return {
            k.removeprefix(prefix + "."): v for k, v in arrays.items() if k.startswith(prefix + ".")
        }

    wanted = network.network.model_dump(mode="json")
    state, shapes = part("network"), scenario_shapes(network.network)
    if metadata["network"] != wanted:
        raise StoreError(
            f"{path}: an actor of network {metadata['network']}, not {wanted}; set [network] to "
            "match"
        )
    found_shapes = {k: v.shape for k, v in state.items()}
    if found_shapes != shapes or "support" not in arrays:
        raise StoreError(
            f"{path}: parameters missing or of another shape; it was written by other code, train "
            "it again"
        )
    found = {}
    for name, bank in banks.items():
        if metadata["banks"][name] != bank.section.model_dump(mode="json"):
            raise StoreError(
                f"{path}: its {name} bank has other parameters; set [skills.bank] to match"
            )
        found[name] = checked(bank.state, part(name), f"{path}: {name}")
    present = _hash(network, state, arrays["support"])
    if present != metadata["weight_hash"]:
        raise StoreError(
            f"{path}: its weights do not fold to the recorded hash; it was written by other code, "
            "train it again"
        )
    return ActorFile(state, arrays["support"], found, metadata["settings"])


@torch.no_grad()
def restore(network: ScenarioNetwork, file: ActorFile) -> None:
    """Set parameters and support in place, where an optimiser's views see them."""
    for name, parameter in network.named_parameters():
        parameter.copy_(torch.from_numpy(file.network[name]))
    network.support.copy_(torch.from_numpy(file.support))
