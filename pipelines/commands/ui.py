"""`skillwalk ui`: Dagster's web server and daemon on the lake's own home."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.commands.options import LAKE, LakeFolder

EXAMPLE = "Example: skillwalk ui --lake lake --port 3000"
ADDRESS = "127.0.0.1"  # this machine only: Dagster's UI has no login


def ui(
    lake: LakeFolder = LAKE,
    port: Annotated[int, typer.Option(metavar="N", min=1, max=65535, help="Port.")] = 3000,
) -> None:
    """Open."""
