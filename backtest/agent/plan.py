"""What one training run is made of: rows it may read, settings, seed, and where it may resume."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from backtest.agent.kinds import BypassMode
from backtest.agent.scenario_layout import forecaster_shapes
from backtest.agent.tensor_file import content_hash
from backtest.agent.weights import N_BAR, check_shapes
from backtest.config import Learner, Network
from backtest.errors import DataError

# (updates done, updates in all, the curve's row when an epoch ended)
Progress = Callable[[int, int, Mapping[str, float | None] | None], None]


def silent(done: int, total: int, row: Mapping[str, float | None] | None) -> None:
    """Report nothing."""


def never() -> bool:
    """Never stop."""
    return False


@dataclass(frozen=True)
class Plan:
    """One fold and seed. The trainer sees the rows of `bar_part` and nothing else of the market."""

    bar_part: npt.NDArray[np.float32]  # [n, 115], BAR_SLOTS of bars first_bar .. first_bar + n - 1
    first_bar: int  # global bar index of row 0
    learner: Learner
    network: Network
    seed: int
    stream: int = 0  # hash32 of "instrument|fold key"
    # parameters of the scenario kind's frozen forecaster by name, without "forecaster."
    forecaster: Mapping[str, npt.NDArray[np.float32]] | None = None
    bypass: BypassMode = "off"  # of the forecast in slot 121; see `backtest.agent.bypass`
    config_hash: str = ""  # what the caller calls the same experiment; part of `identity`
    device: str = "cpu"  # torch device
    progress: Progress = silent
    stop: Callable[[], bool] = never  # asked between blocks of updates
    state_file: Path | None = None  # saved after each epoch, resumed from, removed at the end

    def __post_init__(self) -> None:
        """Refuse rows of another shape or with gaps, and a forecaster that does not fit.

        Raises:
            DataError: names the bar and the slot, or the parameter.
        """
        rows = self.bar_part
        if rows.ndim != 2 or rows.shape[1] != N_BAR or rows.dtype != np.float32 or not len(rows):
            raise DataError(
                f"bar_part is {rows.dtype}{list(rows.shape)}; expected float32[n, {N_BAR}], n >= 1"
            )
        if not np.isfinite(rows).all():
            row, slot = np.argwhere(~np.isfinite(rows))[0]
            raise DataError(
                f"bar {self.first_bar + row}: column {slot} of the state's bar part is "
                f"{rows[row, slot]}; train rows must start after the warm-up and hold no gaps"
            )
        if self.network.kind == "scenario":
            wrong = check_shapes(self.forecaster or {}, forecaster_shapes(self.network))
            if wrong:
                raise DataError(
                    f"the scenario network's forecaster does not fit: {'; '.join(wrong)}; train it "
                    "first (stage 0) under this [network]"
                )

    @property
    def stop_bar(self) -> int:
        """One past the last bar that may be read."""
        return self.first_bar + len(self.bar_part)

    @cached_property
    def identity(self) -> str:
        """SHA-256 (hex) of everything that decides the result, the collector apart."""
        text = json.dumps(
            {
                "bypass": self.bypass,
                "config": self.config_hash,
                "device": self.device,
                "first_bar": self.first_bar,
                "learner": self.learner.model_dump(mode="json"),
                "network": self.network.model_dump(mode="json"),
                "seed": self.seed,
                "stream": self.stream,
            },
            sort_keys=True,
        )
        digest = hashlib.sha256(text.encode())
        digest.update(np.ascontiguousarray(self.bar_part).tobytes())
        if self.network.kind == "scenario":
            digest.update(content_hash(dict(self.forecaster or {})).encode())
        return digest.hexdigest()
