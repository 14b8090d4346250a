"""`skillwalk ui`: Dagster's web server and daemon on the lake's own home."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipelines.commands.options import (
    LAKE,
    ConfigFile,
    LakeFolder,
    Overrides,
    Profile,
    configuration,
    source_name,
)
from pipelines.console import say

EXAMPLE = "Example: skillwalk ui --lake lake --port 3000"
ADDRESS = "127.0.0.1"  # this machine only: Dagster's UI has no login
ROOT = Path(__file__).resolve().parents[2]


def ui(
    config: ConfigFile = None,
    profile: Profile = None,
    overrides: Overrides = None,
    lake: LakeFolder = LAKE,
    port: Annotated[int, typer.Option(metavar="N", min=1, max=65535, help="Port.")] = 3000,
) -> None:
    """Open Dagster's UI on a lake: assets, partitions, runs, plots, schedules. Ctrl-C ends it.

    It listens on this machine only. Without CONFIG and --profile it shows the experiment that ran
    on the lake last. What `skillwalk run` computes meanwhile appears there.
    """
    import sys

    from backtest.lake import Lake
    from pipelines import home
    from pipelines.server import serve

    opened = Lake(lake.resolve())
    if config is None and profile is None and not overrides:
        frozen = home.saved(opened)
    else:
        found = configuration(config, profile, overrides)
        source = source_name(config, profile)
        frozen = home.Frozen(found, opened, source, tuple(overrides or ()))
    folder = home.prepare(frozen)
    with home.instance(folder, frozen.config.study.instruments):
        pass  # registers the instruments as partitions
    url = f"http://{ADDRESS}:{port}"
    say(f"starting Dagster for {frozen.source} on {opened.root}; it takes a few seconds")
    # Dagster's newer command needs one package more and starts the same servers
    command = ["-W", "ignore:Function `dev_command` is superseded", "-m", "dagster", "dev"]
    command += ["-w", str(ROOT / "workspace.yaml")]
    command += ["-h", ADDRESS, "-p", str(port), "--log-level", "warning"]
    code = serve(
        [sys.executable, *command],
        ADDRESS,
        port,
        lambda: say(f"open {url} (Ctrl-C ends it)"),
        environment={"DAGSTER_HOME": str(folder)},
        folder=folder,
    )
    say("stopped")
    raise typer.Exit(1 if code else 0)
