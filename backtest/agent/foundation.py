"""The foundation of a policy: what stage 0 fits on train rows and freezes, per fold and seed.

The direction forecaster with its out-of-fold forecasts, and the forecaster of the scenario network.
The first round of experience needs it as much as the learner; whoever comes first makes the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from backtest.agent import tensor_file
from backtest.agent.aux_head import AuxHead, fit, labels, single_thread
from backtest.agent.aux_report import Report, quality
from backtest.agent.kinds import BypassMode
from backtest.agent.weights import Floats
from backtest.config import Aux, Config
from backtest.errors import DataError
from backtest.features.table import FeatureTable
from backtest.lake import locked

KIND = "skillwalk.foundation"
VERSION = 1
AUX = "aux."
FORECASTER = "forecaster."
TRAIN = "aux_train"


@dataclass(frozen=True)
class Foundation:
    """Frozen parts of one fold and seed.

    Attributes:
        aux: the direction forecaster; None: slot 121 is 0.
        aux_train: float32[n], out-of-fold forecasts of the train rows; empty in one that came from
            a policy, which has no use for them.
        forecaster: parameters of the scenario forecaster by name, without "forecaster."; {} for mlp
            and in one that came from a policy, whose network holds them.
        report: figures of both, by name; None where undefined.
    """

    aux: AuxHead | None
    aux_train: Floats = field(default_factory=lambda: np.zeros(0, np.float32))
    forecaster: Mapping[str, Floats] = field(default_factory=dict)
    report: Report = field(default_factory=dict)

    def forecast(self, states: Floats) -> Floats:
        """Return aux float32[n] of rows outside the train window.

        Args:
            states: float32[n, 115], the bars' part of the state.
        """
        return np.zeros(len(states), np.float32) if self.aux is None else self.aux.forecast(states)

    def forecast_train(self, rows: int) -> Floats:
        """Return aux float32[rows] of the train rows, out of fold.

        Raises:
            DataError: these forecasts are of other rows.
        """
        if self.aux is None:
            return np.zeros(rows, np.float32)
        if len(self.aux_train) != rows:
            raise DataError(
                f"foundation: {len(self.aux_train)} out-of-fold forecasts for {rows} train rows; "
                "use the foundation of this fold, not that of its policy"
            )
        return self.aux_train

    @property
    def arrays(self) -> dict[str, Floats]:
        """The direction forecaster's parameters by name (`Policy.aux`); {} without one."""
        return self.aux.arrays if self.aux is not None else {}

    @property
    def fitted(self) -> Floats:
        """Everything fitted, in one vector."""
        parts = [self.arrays[n].ravel() for n in sorted(self.arrays)]
        parts += [self.forecaster[n].ravel() for n in sorted(self.forecaster)]
        return np.concatenate([*parts, self.aux_train])


def of_arrays(arrays: Mapping[str, Floats]) -> Foundation:
    """Return the foundation of a policy from `Policy.aux`."""
    return Foundation(AuxHead(**arrays) if arrays else None)


def needed(config: Config) -> bool:
    """Return whether policies of this configuration stand on a foundation."""
    return config.aux.enabled or config.network.kind == "scenario"


def bypass_mode(aux: Aux) -> BypassMode:
    """Return whether and how the forecast's way around the network learns."""
    return aux.grad if aux.enabled and aux.alpha else "off"


def lay_foundation(
    config: Config,
    train: FeatureTable,
    states: Floats,
    *,
    tick_size: float,
    seed: int,
    stream: int,
    device: str = "cpu",
) -> Foundation:
    """Fit what the configuration asks for, on the train rows and nothing else.

    Args:
        config: sections aux and network.
        train: the train rows, n of them; labels end within them.
        states: float32[n, 115], the bars' part of their states.
        tick_size: points.
        seed: the run's.
        stream: hash32 of "instrument|fold key".
        device: torch device of the scenario forecaster; the direction forecaster is fitted on the
            CPU, so that it does not depend on the device.

    Raises:
        DataError: rows and states differ in number.
    """
    if len(states) != len(train):
        raise DataError(f"foundation: {len(states)} states for {len(train)} train rows")
    head, forecasts, report = None, np.zeros(0, np.float32), Report()
    forecaster: Mapping[str, Floats] = {}
    if config.aux.enabled:
        target = labels(train, config.aux.horizon, tick_size)
        fitted = fit(states, target, config.aux, seed=seed, stream=stream)
        head, forecasts, report = fitted.head, fitted.train, quality(fitted)
    if config.network.kind == "scenario":
        from backtest.agent.scenario.paths import future_paths
        from backtest.agent.scenario.training import train_forecaster

        columns = (train.open, train.close, train.roll, train.sigma)
        paths = future_paths(*columns, tick_size, config.network.horizon)
        with single_thread():
            trained = train_forecaster(states, paths, config.network, seed, stream, device)
        forecaster, report = trained.state, report | dict(trained.report)
    return Foundation(head, forecasts, forecaster, report)


def save_foundation(path: Path, foundation: Foundation, made_by: str) -> None:
    """Write a foundation atomically.

    Args:
        path: the file; its folder must exist.
        foundation: what to write.
        made_by: who made it: fold, seed and device.
    """
    arrays = {AUX + name: array for name, array in foundation.arrays.items()}
    arrays |= {FORECASTER + name: array for name, array in foundation.forecaster.items()}
    arrays[TRAIN] = foundation.aux_train
    tensor_file.write(
        path, KIND, VERSION, arrays, {"made_by": made_by, "report": dict(foundation.report)}
    )


def load_foundation(path: Path) -> tuple[Foundation, str]:
    """Read a foundation and who made it.

    Raises:
        StoreError: missing, truncated, damaged or of another version.
    """
    arrays, metadata = tensor_file.read(path, KIND, VERSION)
    found = replace(
        of_arrays(_named(arrays, AUX)),
        aux_train=arrays[TRAIN],
        forecaster=_named(arrays, FORECASTER),
        report=metadata["report"],
    )
    return found, str(metadata["made_by"])


def open_foundation(path: Path, made_by: str, lay: Callable[[], Foundation]) -> Foundation:
    """Return the foundation in a file; lay it first where it is missing or of another maker.

    Whoever comes second, in whichever process, waits and finds it made.

    Args:
        path: the file; folders are made.
        made_by: fold, seed and device.
        lay: makes it.

    Raises:
        StoreError: the file is truncated, damaged or of another version.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_name(f".{path.stem}.lock")):
        if path.is_file():
            found, maker = load_foundation(path)
            if maker == made_by:
                return found
        made = lay()
        save_foundation(path, made, made_by)
        return made


def _named(arrays: Mapping[str, Floats], prefix: str) -> dict[str, Floats]:
    """Return the arrays whose names start with a prefix, by the rest of the name."""
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
