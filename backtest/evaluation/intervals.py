"""Confidence intervals: of a Sharpe over time, of scores over seeds and folds, of differences.

Time series are resampled in blocks of random length (Politis & Romano 1994; block length by
Politis & White 2004 as corrected in 2009), runs within their fold (Agarwal et al. 2021, "Deep
reinforcement learning at the edge of the statistical precipice"). Undefined is None; see `ratios`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from backtest import rng
from backtest.errors import ConfigError
from backtest.evaluation.ratios import ROUNDING, Floats, dispersion, sharpe

RESAMPLES = 1000
CONFIDENCE = 0.95

# `round` of the bootstrap stream, one for each user of it
SHARPE_ROUND, STRATIFIED_ROUND, X_ROUND, Y_ROUND, TOTAL_ROUND = range(5)


@dataclass(frozen=True)
class Interval:
    """An estimate and its bounds; None where the data do not define them."""

    value: float | None
    low: float | None
    high: float | None
    n: int  # values it rests on


def sharpe_interval(
    returns: Floats,
    sessions_per_year: float,
    key: rng.Words,
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Interval:
    """Return the annualised Sharpe with its stationary-bootstrap percentile interval.

    Args:
        returns: float64[n], daily net PnL / initial capital, in the order of time.
        sessions_per_year: of the instrument's calendar.
        key: uint32[2] of `rng.key`; equal keys give equal resamples.
        resamples: number of bootstrap series.
        confidence: of the interval, in (0, 1).
    """
    value = sharpe(returns, sessions_per_year)
    if value is None:
        return Interval(None, None, None, len(returns))
    scale = math.sqrt(sessions_per_year)
    drawn = redrawn(returns, key, SHARPE_ROUND, resamples)
    return Interval(value, *bounds(sharpe_of_rows(drawn) * scale, confidence), len(returns))


def total_interval(
    values: Floats,
    key: rng.Words,
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Interval:
    """Return the sum of a series with its stationary-bootstrap percentile interval.

    A series without dispersion, such as the difference of two equal runs, has a sum and no bounds.

    Args:
        values: float64[n], in the order of time.
        key: uint32[2] of `rng.key`; equal keys give equal resamples.
        resamples: number of bootstrap series.
        confidence: of the interval, in (0, 1).
    """
    value = float(np.sum(values))
    if dispersion(values) is None:
        return Interval(value, None, None, len(values))
    sums: Floats = np.sum(redrawn(values, key, TOTAL_ROUND, resamples), axis=1)
    return Interval(value, *bounds(sums, confidence), len(values))


def redrawn(series: Floats, key: rng.Words, round: int, resamples: int) -> Floats:
    """Return float64[resamples, n] of the stationary bootstrap of a series float64[n]."""
    # arch loads pandas and statsmodels: seconds that a command line's --help must not pay
    from arch.bootstrap import StationaryBootstrap

    word = rng.uniform(key, rng.Stage.BOOTSTRAP, round, 0, 0, 0)
    bootstrap = StationaryBootstrap(block_length(series), series, seed=int(word * 2**24))
    return np.stack([data[0] for data, _ in bootstrap.bootstrap(resamples)])


def sharpe_of_rows(returns: Floats) -> Floats:
    """Return mean / std (ddof 1) of each row of float64[resamples, n], NaN without dispersion."""
    deviation = np.std(returns - returns[:, :1], axis=1, ddof=1)
    deviation[deviation <= ROUNDING * np.max(np.abs(returns), axis=1)] = np.nan
    ratio: Floats = np.mean(returns, axis=1) / deviation
    return ratio


def block_length(returns: Floats) -> float:
    """Return the mean block length of the stationary bootstrap, in rows, from 1 to n."""
    from arch.bootstrap import optimal_block_length

    n = len(returns)
    fallback = n ** (1 / 3)  # the order of the optimum, for series too short to estimate it
    try:
        with np.errstate(divide="ignore", invalid="ignore"):
            length = float(optimal_block_length(returns)["stationary"].iloc[0])
    except ValueError:
        length = fallback
    if not math.isfinite(length):
        length = fallback
    return min(max(length, 1.0), float(n))


def interquartile_mean(values: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Return the mean of the middle half along the last axis.

    A quarter of the values, rounded down, goes at each end: fewer than 4 values give their mean.
    """
    ordered = np.sort(np.asarray(values, np.float64), axis=-1)
    n = ordered.shape[-1]
    middle: npt.NDArray[np.float64] = np.mean(ordered[..., n // 4 : n - n // 4], axis=-1)
    return middle


def stratified_interval(
    scores: Floats,
    key: rng.Words,
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Interval:
    """Return the interquartile mean over all runs with its stratified bootstrap interval.

    Runs are resampled within their fold. One run a fold, or runs that all agree, have a value and
    no bounds.

    Args:
        scores: float64[seeds, folds]; NaN where a run's score is undefined.
        key: uint32[2] of `rng.key`.
        resamples: number of bootstrap samples.
        confidence: of the interval, in (0, 1).
    """
    strata = defined(scores)
    n = sum(len(stratum) for stratum in strata)
    if not n:
        return Interval(None, None, None, 0)
    value = float(interquartile_mean(np.concatenate(strata)))
    if max(len(stratum) for stratum in strata) < 2:
        return Interval(value, None, None, n)
    drawn = resampled(strata, key, STRATIFIED_ROUND, resamples)
    return Interval(value, *bounds(interquartile_mean(np.concatenate(drawn, 1)), confidence), n)


def probability_of_improvement(
    x: Floats,
    y: Floats,
    key: rng.Words,
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Interval:
    """Return P(X > Y), the mean over folds of the share of pairs of runs that X wins; ties half.

    Both sides are resampled within the fold. When X wins every pair, so it does in every resample:
    the bounds are 1 and 1.

    Args:
        x: float64[seeds, folds], or float64[seeds] of one fold; NaN where undefined.
        y: same folds, any number of seeds.
        key: uint32[2] of `rng.key`.
        resamples: number of bootstrap samples.
        confidence: of the interval, in (0, 1).

    Raises:
        ConfigError: different numbers of folds.
    """
    x, y = (np.asarray(side, np.float64).reshape(len(side), -1) for side in (x, y))
    if x.shape[1] != y.shape[1]:
        raise ConfigError(
            f"{x.shape[1]} folds against {y.shape[1]}: compare runs of the same folds"
        )
    both = np.any(np.isfinite(x), axis=0) & np.any(np.isfinite(y), axis=0)
    if not np.any(both):
        return Interval(None, None, None, 0)
    left, right = defined(x[:, both]), defined(y[:, both])
    value = float(np.mean([wins(a, b) for a, b in zip(left, right, strict=True)]))
    n = sum(len(a) * len(b) for a, b in zip(left, right, strict=True))
    if max(len(stratum) for stratum in left + right) < 2:
        return Interval(value, None, None, n)
    pairs = zip(
        resampled(left, key, X_ROUND, resamples),
        resampled(right, key, Y_ROUND, resamples),
        strict=True,
    )
    shares = np.mean([wins(a, b) for a, b in pairs], axis=0)
    low, high = np.quantile(shares, tails(confidence))
    return Interval(value, float(low), float(high), n)


def wins(x: Floats, y: Floats) -> npt.NDArray[np.float64]:
    """Return the share of pairs (x, y) along the last axes with x > y, a tie counting half."""
    a, b = x[..., :, None], y[..., None, :]
    share: npt.NDArray[np.float64] = np.mean((a > b) + 0.5 * (a == b), axis=(-2, -1))
    return share


def mean_interval(values: Floats, *, confidence: float = CONFIDENCE) -> Interval:
    """Return the mean with its t interval; NaN rows (undefined) do not count."""
    values = values[np.isfinite(values)]
    n = len(values)
    if not n:
        return Interval(None, None, None, 0)
    value, deviation = float(np.mean(values)), dispersion(values)
    if deviation is None:
        return Interval(value, None, None, n)
    return t_interval(value, deviation / math.sqrt(n), n - 1, n, confidence)


def mean_difference(
    x: Floats, y: Floats, *, paired: bool = True, confidence: float = CONFIDENCE
) -> Interval:
    """Return mean(x) - mean(y) with its t interval.

    Args:
        x: float64[n], one value a seed.
        y: float64[n]; not paired: float64[m].
        paired: the rows of x and y share a seed, hence their random numbers; pairs with a NaN do
            not count. Otherwise the interval is Welch's.
        confidence: of the interval, in (0, 1).

    Raises:
        ConfigError: paired samples of different lengths.
    """
    if paired:
        if len(x) != len(y):
            raise ConfigError(f"{len(x)} seeds against {len(y)}: a paired difference needs equals")
        return mean_interval(x - y, confidence=confidence)
    x, y = x[np.isfinite(x)], y[np.isfinite(y)]
    n = len(x) + len(y)
    if not len(x) or not len(y):
        return Interval(None, None, None, n)
    value = float(np.mean(x) - np.mean(y))
    spread = dispersion(x), dispersion(y)
    if len(x) < 2 or len(y) < 2 or spread == (None, None):
        return Interval(value, None, None, n)
    a, b = ((s or 0.0) ** 2 / len(side) for s, side in zip(spread, (x, y), strict=True))
    # Welch-Satterthwaite
    freedom = (a + b) ** 2 / (a**2 / (len(x) - 1) + b**2 / (len(y) - 1))
    return t_interval(value, math.sqrt(a + b), freedom, n, confidence)


def t_interval(value: float, error: float, freedom: float, n: int, confidence: float) -> Interval:
    """Return value -+ t * standard error."""
    from scipy.special import stdtrit

    reach = float(stdtrit(freedom, tails(confidence)[1])) * error
    return Interval(value, value - reach, value + reach, n)


def tails(confidence: float) -> tuple[float, float]:
    """Return the two quantiles that bound an interval."""
    if not 0 < confidence < 1:
        raise ConfigError(f"confidence = {confidence!r}: use a fraction such as 0.95")
    return (1 - confidence) / 2, (1 + confidence) / 2


def bounds(estimates: Floats, confidence: float) -> tuple[float | None, float | None]:
    """Return the percentile interval of bootstrap estimates.

    None when more than half of the resamples are undefined, or when all agree.
    """
    valid = estimates[np.isfinite(estimates)]
    if 2 * len(valid) < len(estimates) or not len(valid):
        return None, None
    low, high = (float(q) for q in np.quantile(valid, tails(confidence)))
    return (low, high) if high - low > ROUNDING * float(np.max(np.abs(valid))) else (None, None)


def defined(scores: Floats) -> list[Floats]:
    """Return for each fold with any defined run those runs' scores."""
    columns = np.asarray(scores, np.float64).T
    return [c[np.isfinite(c)] for c in columns if np.any(np.isfinite(c))]


def resampled(strata: list[Floats], key: rng.Words, round: int, resamples: int) -> list[Floats]:
    """Draw each stratum anew with replacement: float64[resamples, len(stratum)] of each."""
    width = sum(len(stratum) for stratum in strata)
    u = _uniforms(*(int(word) for word in key), round, resamples, width)
    drawn, at = [], 0
    for stratum in strata:
        n = len(stratum)
        drawn.append(stratum[(u[:, at : at + n] * np.float32(n)).astype(np.int64)])
        at += n
    return drawn


# All metrics of a record are resampled alike: the same numbers, drawn once.
@lru_cache(maxsize=8)
def _uniforms(
    seed: int, fold: int, round: int, resamples: int, width: int
) -> npt.NDArray[np.float32]:
    key = np.array([seed, fold], np.uint32)
    sample, place = np.arange(resamples)[:, None], np.arange(width)[None, :]
    return rng.uniform(key, rng.Stage.BOOTSTRAP, round, sample, place, 0)
