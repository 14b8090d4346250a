"""The asset graph of one experiment."""

from __future__ import annotations

import dagster as dg

from assets.audit import reward_audit
from assets.bars import bar_assets
from assets.experience import experience
from assets.features import features
from assets.fold_result import fold_result
from assets.partitions import Partitions
from assets.policy import policy
from assets.report import report
from assets.skill_bank import skill_bank
from assets.walk_forward import walk_forward

# The jobs' selections: Dagster runs one partition definition at a time.
INGEST = ("raw_bars", "bars", "reward_audit")
FEATURES = ("features",)
NEW_FOLD = ("experience", "policy", "skill_bank", "fold_result")
WALK_FORWARD = ("walk_forward", "report")


def graph(partitions: Partitions) -> list[dg.AssetsDefinition]:
    """Return every asset, upstream first."""
    return [
        *bar_assets(),
        reward_audit(),
        features(partitions),
        experience(partitions),
        policy(partitions),
        skill_bank(partitions),
        fold_result(partitions),
        walk_forward(partitions),
        report(),
    ]
