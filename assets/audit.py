"""reward_audit: does the reward rank scripted policies by what they are worth, before training?"""

# No `from __future__ import annotations`: Dagster reads the annotations of an asset.

import dagster as dg

from assets import checks, tables
from assets.partitions import INSTRUMENTS
from assets.resources import ExperimentResource, run_id
from assets.tables import Made
from backtest import identity

SHOWN = ("source", "horizon", "policy", "mean_reward", "net_pnl", "order_ok")


def reward_audit() -> dg.AssetsDefinition:
    """Return the asset."""

    @dg.asset(
        name="reward_audit",
        group_name="data",
        partitions_def=INSTRUMENTS,
        deps=["bars"],
        pool="gpu",
        code_version=identity.code_hash()[: identity.ID_DIGITS],
        kinds={"opencl"},
        description="Scripted policies of known skill under the reward: Gaussian bars, own bars.",
        check_specs=checks.specs("reward_audit", ("audit_order",), INSTRUMENTS, blocking=True),
    )
    def audit(context: dg.AssetExecutionContext, experiment: ExperimentResource) -> Made:
        from opencl.reward_audit import bars_audit, synthetic_audit, write_audits

        opened, name = experiment.open(), context.partition_key
        audits = [synthetic_audit(opened, name), bars_audit(opened, name, opened.bars(name))]
        write_audits(opened, name, audits, run_id(context))
        rows = [row for one in audits for row in one.rows]
        warnings = [gap.text for one in audits for gap in one.warnings]
        for one in audits:
            context.log.info(one.summary)
        return dg.MaterializeResult(
            metadata={
                "formula": audits[0].formula,
                "order_ok": all(one.order_ok for one in audits),
                "notional_to_capital": audits[1].notional,
                "policies": tables.table(rows, SHOWN),
                "components": tables.table(rows),
                "required": tables.table(
                    [
                        {"gap": gap.text, "holds": gap.holds}
                        for one in audits
                        for gap in one.required
                    ]
                ),
                "warnings": tables.table([{"warning": text} for text in warnings]),
                "regime": tables.table(audits[1].regime),
            },
            check_results=[checks.audit_order(audits)],
        )

    return audit
