"""The domain: bars, features, folds, market, policy, evaluation, store.

Knows neither Dagster nor OpenCL.
"""
