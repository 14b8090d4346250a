"""report: an HTML page for each instrument of the study."""

# No `from __future__ import annotations`: Dagster reads the annotations of an asset.

import dagster as dg

from assets.resources import ExperimentResource
from assets.tables import Made
from backtest import identity


def report() -> dg.AssetsDefinition:
    """Return the asset."""

    @dg.asset(
        name="report",
        group_name="results",
        deps=["walk_forward"],
        code_version=identity.code_hash()[: identity.ID_DIGITS],
        kinds={"html"},
        description="Out-of-sample record, baselines, verdict and folds, one page an instrument.",
    )
    def write(experiment: ExperimentResource) -> Made:
        from backtest.report import write_report
        from backtest.summary import summarize
        from backtest.verdict import verdict

        opened = experiment.open()
        pages = write_report(opened.lake, opened.study_id)
        words = [f"**{s.title}**\n\n{verdict(s)}" for s in summarize(opened.lake, opened.study_id)]
        return dg.MaterializeResult(
            metadata={
                "verdict": dg.MetadataValue.md("\n\n".join(words)),
                "pages": [dg.MetadataValue.path(page).path for page in pages],
            }
        )

    return write
