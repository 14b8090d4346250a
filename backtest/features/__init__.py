"""Features: causal, scale-free columns of one bar each, and the scaled state they become."""

from backtest.features.cusum import cusum_events

__all__ = ["cusum_events"]
