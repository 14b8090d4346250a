"""Evaluation: equity, trades, metrics, baselines, intervals."""
