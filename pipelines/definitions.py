"""What workspace.yaml and `dg` load: the experiment that ran or was opened last on the lake.

The lake is that of DAGSTER_HOME (`<lake>/.dagster`), else `lake` in the working folder; without an
experiment on it, the shipped smoketest is shown. Nothing is read from other variables.
"""

from __future__ import annotations

from pipelines.build import definitions
from pipelines.home import saved, served_lake

defs = definitions(saved(served_lake()))
