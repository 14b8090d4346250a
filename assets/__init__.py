"""Dagster assets and checks: a few lines of glue around plain functions of opencl and backtest.

Reading order: partitions (the folds), resources and trials (what a step may use), then the assets
in the order of the graph: bars, features, audit, experience, policy, skill_bank, fold_result,
walk_forward, report. checks, plots and tables are what they show; graph puts them together.
"""

import warnings

from dagster import BetaWarning, PreviewWarning

# Multi-partition mappings and metadata by partition are marked beta; dagster is pinned for that.
warnings.simplefilter("ignore", BetaWarning)
warnings.simplefilter("ignore", PreviewWarning)
# A run of the job is one fold; ranges of folds are backfills of assets, each by its own policy.
warnings.filterwarnings("ignore", "Asset job new_fold materializes assets with varying")
