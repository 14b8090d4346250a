"""The sections of an experiment: every key, its unit and its range.

A section is a frozen table; unknown keys are errors. Reading TOML is `backtest.config`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

NonNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Share = Annotated[float, Field(gt=0, le=1)]
Natural = Annotated[int, Field(ge=0)]
# TOML has dates of its own: a bare 2012-01-01 means the same as "2012-01-01".
IsoText = Annotated[str, BeforeValidator(lambda v: v.isoformat() if isinstance(v, date) else v)]
Policy = Literal["error", "drop", "keep"]


class Section(BaseModel):
    """A frozen table of the TOML file; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Study(Section):
    """What runs: instruments and seeds (both are dimensions of the results, not of the study)."""

    name: str = "skillwalk"
    instruments: tuple[str, ...] = ("SP500",)
    seeds: tuple[Natural, ...] = (0, 1)

    @model_validator(mode="after")
    def _unique(self) -> Study:
        if len(set(self.seeds)) != len(self.seeds) or not self.seeds:
            raise ValueError("seeds must be a non-empty list without repeats")
        if len(set(self.instruments)) != len(self.instruments) or not self.instruments:
            raise ValueError("instruments must be a non-empty list without repeats")
        return self


class CsvFormat(Section):
    """How a text file is written; nothing here is guessed when it is given."""

    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    decimal: Literal[".", ","] = "."
    header: bool = True
    # our name -> the file's header, or the column's place (from 0) when there is no header
    columns: Mapping[str, str | int] | None = None
    # strptime format, or epoch_s, epoch_ms, epoch_us, epoch_ns; None: the one reading that fits
    date_format: str | None = None
    timezone: str = "UTC"
    # which end of the bar a time stamp names; None: open, or close for date-only stamps
    stamp: Literal["open", "close"] | None = None


class Synthetic(Section):
    """Seeded synthetic bars: AR(1) on close-to-close differences, or a martingale (phi = 0)."""

    bars: PositiveInt = 30_000
    seed: Natural = 0
    phi: Annotated[float, Field(gt=-1, lt=1)] = 0.0
    # > 0: the sign of phi changes at random between blocks of this many bars
    regime_bars: Natural = 0
    regime_from: Natural = 0  # bars before this one keep the sign of phi
    sigma: PositiveFloat = 1.2  # points per bar
    price: float = 5000.0
    start: IsoText = "2000-01-01T00:00:00Z"


class IssuePolicies(Section):
    """What happens to each kind of data issue; the defaults never lose data silently."""

    unsorted: Policy = "error"
    duplicate_identical: Policy = "drop"
    duplicate_conflicting: Policy = "error"
    ohlc_inconsistent: Policy = "error"
    not_finite: Policy = "error"
    all_zero: Policy = "error"
    jump: Policy | None = None  # None: error when adjustable, else keep
    gap: Policy = "keep"
    stale: Policy = "keep"
    zero_volume: Policy = "keep"
    negative_price: Policy = "keep"


class Instrument(Section):
    """One instrument: where its bars come from, what a point is worth, what trading costs."""

    source: str = ""  # "example:sp500", "synthetic", or a path to CSV or Parquet
    csv: CsvFormat = CsvFormat()
    synthetic: Synthetic = Synthetic()
    issues: IssuePolicies = IssuePolicies()
    calendar: str = "24/7"  # an exchange_calendars name, or 24/7
    bar: str | None = None  # spacing such as "1min", "1h", "1d"; None: derived from the data
    adjustable: bool = False  # an equity whose splits must be adjusted: a jump > 40 % is an error
    point_value: PositiveFloat = 1.0  # currency per point and unit
    tick_size: PositiveFloat = 0.01  # points
    lot_size: NonNegative = 0.0  # units; 0 = fractional
    max_position: PositiveFloat = 1.0  # units
    commission: NonNegative = 0.0  # currency per unit and fill
    half_spread: NonNegative = 0.0  # points, market orders
    slippage: NonNegative = 0.0  # points, market orders
    tx_cost_multiplier: Annotated[float, Field(ge=0, lt=1)] = 1e-5  # fraction of traded notional
    limit_offsets: tuple[NonNegative, NonNegative] = (0.1, 0.5)  # sigmas: limit, deep limit


class Folds(Section):
    """The calendar walk-forward plan: whole cron windows of train, validation and test."""

    cron: str = "0 0 1 1 *"
    train: PositiveInt = 8  # windows
    validation: PositiveInt = 1  # windows
    # ISO date in the first window that the UI offers before bars are ingested; None: 1970-01-01.
    # Afterwards the bars decide, so that it changes no row.
    start: IsoText | None = None
    end: IsoText | None = None  # ISO date that closes the last window; None: open
    warmup: Annotated[int, Field(ge=605)] = 605  # bars; 121 bars on the 5-bar scale
    horizon: PositiveInt = 12  # bars a label or n-step return looks ahead
    fill_lag: PositiveInt = 1  # bars between decision and mark
    purge: PositiveInt | None = None  # bars; None = horizon + fill_lag
    embargo: Natural = 0  # bars


class Features(Section):
    """Feature conventions that are not fixed by the specification."""

    adx_seed: Literal["talib", "wilder"] = "talib"
    scaler: Literal["robust", "standard"] = "robust"


class Market(Section):
    """Timing and accounting rules shared by all instruments."""

    fill: Literal["next_open", "close"] = "next_open"
    initial_capital: PositiveFloat = 100_000.0  # currency
    ruin_level: float = 0.0  # currency; equity at or below ends the episode
    magnitudes: tuple[Share, Share, Share] = (1 / 3, 2 / 3, 1.0)  # of max_position
    urgencies: tuple[Share, Share, Share] = (1 / 3, 2 / 3, 1.0)  # of the change


class Reward(Section):
    """The composite, risk-adjusted reward."""

    formula: Literal["calibrated", "composite"] = "calibrated"
    w_dsr: Annotated[float, Field(ge=0, le=10)] = 1.0
    w_pnl: Annotated[float, Field(ge=0, le=10)] = 0.3
    w_dd: Annotated[float, Field(ge=0, le=10)] = 1.0
    w_idle: Annotated[float, Field(ge=0, le=1)] = 0.01
    dd_threshold: Annotated[float, Field(gt=0, lt=1)] = 0.02
    loss_aversion: Annotated[float, Field(ge=1, le=10)] = 1.25
    time_decay_rate: Annotated[float, Field(ge=0, le=0.1)] = 0.0005
    dsr_eta: Annotated[float, Field(gt=0, lt=1)] = 0.01
    idle_scale: NonNegative = 0.001
    max_idle_penalty: NonNegative = 0.05
    dsr_epsilon: PositiveFloat = 1e-8  # composite only
    max_hold_penalty: NonNegative = 0.002  # calibrated only
    cusum_ref: PositiveFloat = 0.15  # calibrated only
    scale_beta: NonNegative = 0.5


class Evaluation(Section):
    """Intervals and baselines."""

    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    bootstrap: PositiveInt = 1000  # resamples
    random_draws: PositiveInt = 32  # random baselines with the policy's turnover


class Audit(Section):
    """Size of the reward audit."""

    synthetic_episodes: PositiveInt = 4096
    user_episodes: PositiveInt = 512
    horizons: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = (100, 1000)  # steps


class Runtime(Section):
    """Where and how it runs; nothing here changes a result beyond the device's own arithmetic.

    Precision is that of the policy while experience is collected. auto: bf16 where tensor cores
    play the network, else fp32. Everything that is judged or reported is always played in fp32.

    Runner auto: in this process on a GPU, where the seeds of a fold share the device side by side;
    in a pool of `workers` processes on a CPU.
    """

    device: str = "auto"
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    runner: Literal["auto", "inline", "process"] = "auto"
    workers: PositiveInt = 2


def check_units(name: str, instrument: Instrument, market: Market) -> None:
    """Refuse sizes that float32 or the lot size cannot express.

    Raises:
        ValueError: names the key and the value that fits.
    """
    tick_value = instrument.tick_size * instrument.point_value * instrument.max_position
    if tick_value < 2.0**-22 * market.initial_capital:
        raise ValueError(
            f"instruments.{name}: one tick of a full position is worth {tick_value:g}, which "
            f"float32 equity of {market.initial_capital:g} cannot see; use market.initial_capital "
            f"<= {tick_value * 2.0**22:g} or max_position >= "
            f"{2.0**-22 * market.initial_capital / instrument.tick_size / instrument.point_value:g}"
        )
    smallest = min(market.magnitudes) * instrument.max_position
    # magnitudes such as 1/3 of 15 lots carry one rounding
    if instrument.lot_size > smallest * (1 + 1e-12):
        raise ValueError(
            f"instruments.{name}.lot_size = {instrument.lot_size:g} exceeds the smallest target "
            f"{smallest:g} (market.magnitudes x max_position); use max_position >= "
            f"{instrument.lot_size / min(market.magnitudes):g}"
        )
