"""The sections of an experiment that describe the agent: networks, learner, skills.

As `backtest.sections`: every key, its unit and its range.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from backtest.sections import Fraction, Natural, NonNegative, Section, Share

Branch = Literal["direction", "magnitude", "order", "urgency"]


class Network(Section):
    """The policy network."""

    kind: Literal["mlp", "scenario"] = "mlp"
    hidden: tuple[PositiveInt, PositiveInt] = (128, 128)  # the trunk of both kinds
    atoms: Annotated[int, Field(ge=11, le=201)] = 51
    # scenario only, from here on
    scenarios: Annotated[int, Field(ge=1, le=64)] = 8  # S, mixture components of the forecaster
    horizon: Annotated[int, Field(ge=1, le=60)] = 6  # H, bars ahead that the forecaster describes
    latent: Annotated[int, Field(ge=2, le=64, multiple_of=2)] = 8  # L, width of one latent
    stack_size: Annotated[int, Field(ge=1, le=16)] = 1  # interpretations the trunk sees; 1 = now
    top_k: Natural = 0  # tokens each query attends to; 0 = all
    forecaster_hidden: PositiveInt = 128
    forecaster_updates: PositiveInt = 400
    forecaster_batch: PositiveInt = 256
    forecaster_rate: PositiveFloat = 1e-3

    @model_validator(mode="after")
    def _tokens(self) -> Network:
        if self.top_k > self.horizon:
            raise ValueError(f"top_k = {self.top_k} exceeds the {self.horizon} tokens of horizon")
        return self


class Aux(Section):
    """The direction forecast of state slot 121, and its way around the network."""

    enabled: bool = True  # False: slot 121 is 0
    horizon: PositiveInt = 12  # K, bars ahead
    hidden: PositiveInt = 32
    updates: PositiveInt = 300  # of each model; fewer where that were over ten passes
    batch: PositiveInt = 256
    learning_rate: PositiveFloat = 1e-3
    weight_decay: NonNegative = 3e-2  # L2
    alpha: bool = True  # the forecast reaches Q of direction directly
    grad: Literal["detached", "both"] = "detached"  # both: the bypass also differentiates slot 121


class SkillBank(Section):
    """How one bank of skills retrieves, forms and judges them (both banks alike)."""

    slots: PositiveInt | None = None  # None: network.scenarios
    representation: Literal["direction_magnitude", "full"] = "direction_magnitude"
    # cosine; auto: the 0.9 quantile over random pairs of contexts
    similarity_threshold: Literal["auto"] | Annotated[float, Field(gt=-1, le=1)] = "auto"
    direction_threshold: Annotated[float, Field(gt=-1, le=1)] = 0.5  # cosine
    utility_weight: NonNegative = 0.1
    alpha: NonNegative = 1.0  # strength of a correction; validation chooses among skills.alphas
    alpha_unit: Literal["relative", "raw"] = "relative"
    utility_aware: bool = True
    min_utility: Annotated[float, Field(ge=-1, le=1)] = -0.2
    exploration_c: NonNegative = 0.05
    centering: Literal["mean", "none"] = "mean"
    aggregate: PositiveInt = 25  # observations that make one; 1 = none
    aggregate_cells: PositiveInt = 64
    key: Literal["latent", "features"] = "latent"  # features: step bank only
    # advantage: (R5 - mean Q) d(Q[a] - mean Q)/dh; td: minus the gradient of the learner's loss
    residual: Literal["advantage", "td"] = "advantage"
    beta_key: Share = 0.1
    beta_direction: Share = 0.1
    beta_magnitude: Share = 0.1
    beta_correction: Share = 0.1
    beta_utility: Share = 0.1
    max_correction: PositiveFloat = 1.0  # norm
    min_confirmations: PositiveInt = 3
    protection_age: Natural = 10  # emitted observations
    inactivity_age: PositiveInt = 200  # emitted observations
    candidate_pool: PositiveInt = 4
    candidate_ttl: PositiveInt = 50  # emitted observations
    utility_rule: Literal["solo", "participation", "original"] = "solo"
    influence_rule: Literal["trapezoid", "endpoint"] = "trapezoid"


class Skills(Section):
    """The stages after the base policy: collect, evaluate, choose (scenario network only)."""

    banks: tuple[Literal["task", "step"], ...] = ()  # built and tried; none without a name here
    bank: SkillBank = SkillBank()
    # fraction of the train window that trains the base, the rest is collected on; None: all of it
    # serves both
    collect_from: Annotated[float, Field(gt=0, lt=1)] | None = None
    evaluate_rounds: PositiveInt = 8
    evaluate_episodes: PositiveInt = 256
    evaluate_steps: PositiveInt = 256  # bars an episode
    alphas: Annotated[tuple[PositiveFloat, ...], Field(min_length=1)] = (0.1, 0.3, 1.0, 3.0)
    finetune: bool = True  # a row of the ablation: the same budget spent on training on
    online: bool = False  # test windows calibrate directions as they go
    random_banks: Natural = 0  # random-direction banks tried beside each bank on validation

    @model_validator(mode="after")
    def _unique(self) -> Skills:
        if len(set(self.banks)) != len(self.banks):
            raise ValueError("banks names a bank twice")
        if self.bank.key == "features" and "task" in self.banks:
            raise ValueError('bank.key = "features" is for the step bank; leave task out of banks')
        return self


class Learner(Section):
    """Branching dueling C51 double DQN."""

    branches: tuple[Branch, ...] = ("direction", "magnitude")
    gamma: Annotated[float, Field(gt=0, lt=1)] = 0.8
    n_step: Annotated[int, Field(ge=1, le=12)] = 3
    learning_rate: PositiveFloat = 4e-4
    adam_eps: PositiveFloat = 1e-5
    weight_decay: NonNegative = 0.0
    gradient_clip: PositiveFloat = 10.0
    batch: PositiveInt = 256
    updates: PositiveInt = 1500  # in all, per fold and seed
    epochs: PositiveInt = 3  # rounds of collect, update, validate
    envs: PositiveInt = 64
    episode_steps: Annotated[int, Field(ge=64)] = 512
    target_every: Natural = 200  # updates between hard target copies; 0 = soft updates by tau
    tau: Annotated[float, Field(gt=0, le=1)] = 0.005
    epsilon_start: Fraction = 1.0
    epsilon_end: Fraction = 0.05
    epsilon_decay: Annotated[float, Field(gt=0, le=1)] = 0.4  # fraction of all updates
    replay: Literal["prioritised", "uniform"] = "prioritised"
    replay_rows: PositiveInt = 262_144
    per_alpha: Fraction = 0.6
    per_beta: Fraction = 0.4  # rises to 1 over the updates
    patience: PositiveInt = 1000  # epochs without a better validation Sharpe before stopping
    v_max: PositiveFloat | None = None  # None: from the first experience

    @model_validator(mode="after")
    def _branches(self) -> Learner:
        if "direction" not in self.branches or len(set(self.branches)) != len(self.branches):
            raise ValueError("branches must hold direction, each branch at most once")
        return self
