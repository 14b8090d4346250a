"""Seeded bars whose edge is known: AR(1) on close-to-close differences, or none.

Every series is a function of (seed, settings) alone, and its first bars do not depend on how many
are made. Uniforms come from raw Philox words, so no library's choice of normal generator matters.
"""

from __future__ import annotations

import numpy as np

from backtest.config import Synthetic
from backtest.data.bars import Floats
from backtest.data.raw import RawBars
from backtest.data.spacing import Spacing
from backtest.errors import ConfigError

WICK = 0.3  # sigmas, mean length of an upper or lower wick
VOLUME = 1_000.0  # units, median
STREAMS = ("innovation", "regime", "upper", "lower", "volume")  # one Philox key each


def synthetic(settings: Synthetic, spacing: Spacing, key: str = "synthetic.start") -> RawBars:
    """Return the bars of the generator; row is the bar index + 1, stamps are closes in UTC.

    d[b] = phi[b]*d[b-1] + e[b], with sd(e) = sigma*sqrt(1 - phi^2), so that sd(d) = sigma from the
    first bar on; close[b] = close[b-1] + d[b]; open[b] = close[b-1]; open[0] = price.

    Raises:
        ConfigError: a start that is no ISO time.
    """
    n, sigma, phi = settings.bars, settings.sigma, settings.phi
    difference = ar1(sigma * normal(settings.seed, "innovation", n), phi * signs(settings))
    close = settings.price + np.cumsum(difference)
    open_ = np.concatenate([[settings.price], close[:-1]])
    upper = -WICK * sigma * np.log(uniform(settings.seed, "upper", n))
    lower = -WICK * sigma * np.log(uniform(settings.seed, "lower", n))
    stamp = instant(settings.start, key) + spacing.ns * np.arange(1, n + 1, dtype=np.int64)
    return RawBars(
        stamp=stamp,
        open=open_,
        high=np.maximum(open_, close) + upper,
        low=np.minimum(open_, close) - lower,
        close=close,
        volume=np.rint(VOLUME * np.exp(0.5 * normal(settings.seed, "volume", n))),
        roll=np.zeros(n, bool),
        row=np.arange(1, n + 1, dtype=np.int64),
        zoned=True,
        closes=True,
    )


def signs(settings: Synthetic) -> Floats:
    """Return +1 or -1 for each bar: drawn anew for every block of bars, +1 before the first."""
    sign = np.ones(settings.bars)
    mixed = settings.bars - settings.regime_from
    if settings.regime_bars == 0 or mixed <= 0:
        return sign
    blocks = -(-mixed // settings.regime_bars)
    drawn = np.where(uniform(settings.seed, "regime", blocks) < 0.5, -1.0, 1.0)
    sign[settings.regime_from :] = np.repeat(drawn, settings.regime_bars)[:mixed]
    return sign


def ar1(noise: Floats, phi: Floats) -> Floats:
    """Return d[b] = phi[b]*d[b-1] + sqrt(1 - phi[b]^2)*noise[b], d[0] = noise[0], float64[n].

    The standard deviation of d is that of the noise (float64[n]) wherever |phi| stays the same.
    """
    fresh = np.sqrt(1.0 - phi * phi) * noise
    fresh[0] = noise[0]
    value, difference = 0.0, []
    for weight, innovation in zip(phi.tolist(), fresh.tolist(), strict=True):
        value = weight * value + innovation
        difference.append(value)
    return np.array(difference)


def uniform(seed: int, stream: str, n: int) -> Floats:
    """Return n uniforms in (0, 1) of one of the generator's streams, 53 bits each."""
    words = np.random.Philox(key=[seed, STREAMS.index(stream)]).random_raw(n)
    return ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def normal(seed: int, stream: str, n: int) -> Floats:
    """Return n standard normals: the inverse distribution function of the uniforms."""
    from scipy.special import ndtri

    return np.asarray(ndtri(uniform(seed, stream, n)))


def instant(text: str, key: str) -> int:
    """Return an ISO time, UTC unless it says otherwise, in ns since 1970."""
    from datetime import UTC, datetime

    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{key} = {text!r}: give an ISO time such as 2000-01-01T00:00Z") from None
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    return (int(time.timestamp()) * 1_000_000 + time.microsecond) * 1000
