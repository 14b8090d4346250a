"""What the benchmarks should reach; a `Row` names its goal by key."""

from __future__ import annotations

from dataclasses import dataclass

from tests.bench.report import scaled


@dataclass(frozen=True)
class Goal:
    """A bound on a figure: at least it, or at most.

    Attributes:
        device: "gpu" or "cpu": the goal is for that kind of device; "" for both.
        unit: of the bound, and of the row that is compared with it.
        beside: who or what it was set against.
    """

    text: str
    bound: float
    unit: str
    device: str = ""
    beside: str = ""
    at_most: bool = False

    def met(self, figure: float) -> bool:
        """Return whether a figure reaches the goal."""
        return figure <= self.bound if self.at_most else figure >= self.bound

    def wording(self) -> str:
        """Return ">= 40 G steps/s"."""
        return f"{'<=' if self.at_most else '>='} {scaled(self.bound)} {self.unit}"


STEPS = "steps/s"
GPU_ENV = "market alone, calibrated reward, 131,072 envs"
GOALS = {
    "env_gpu": Goal(GPU_ENV, 40e9, STEPS, "gpu", "craftax.cu 229 M, a heavier env"),
    "rollout_fp32": Goal("rollout, fp32, standard network", 60e6, STEPS, "gpu", "PufferLib 25.3 M"),
    "rollout_bf16": Goal("rollout, bf16, 65,536 envs", 600e6, STEPS, "gpu", "PufferLib 25.3 M"),
    "rollout_bf16_small": Goal("rollout, bf16, 4,096 envs", 150e6, STEPS, "gpu"),
    "scenario": Goal("scenario rollout with both skill banks", 40e6, STEPS, "gpu"),
    "scenario_overhead": Goal("time that both skill banks add", 15, "%", "gpu", at_most=True),
    "env_cpu": Goal("market alone, calibrated reward, two cores", 100e6, STEPS, "cpu"),
    "anytrading": Goal("market alone", 400, "times", "cpu", "gym-anytrading 2.0.0"),
    "numba": Goal("market alone", 1.3, "times", "cpu", "the same loop in parallel numba"),
    "gymnasium": Goal("rollout", 5, "times", "cpu", "vectorised Python env and torch policy"),
    "vectorbt_cpu": Goal(
        "batch evaluation with equity, transfers included",
        20,
        "times",
        "cpu",
        "vectorbt 1.2.0 with equity, same CPU",
    ),
    "vectorbt_gpu": Goal(
        "batch evaluation with equity, targets and equity in its memory",
        1000,
        "times",
        "gpu",
        "vectorbt 1.2.0 with equity, the host's CPU",
    ),
    "features_adx": Goal("ADX, DX, DI and CUSUM, one core", 2e6, "bars/s", "cpu"),
    "features_all": Goal("all 42 features, one core", 300e3, "bars/s", "cpu"),
    "learner_busy": Goal("learner, batch 4,096: time in the GPU's kernels", 70, "%", "gpu"),
    "smoke": Goal("smoke test, 5,031 real bars to DuckDB", 180, "s", "cpu", at_most=True),
    "walkforward": Goal(
        "walk-forward, 10 folds x 10 seeds x 1 M bars", 3600, "s", "gpu", at_most=True
    ),
}
