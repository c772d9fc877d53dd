"""``evalray mlflow``: the tracking store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evalray.cli.groups import Group
from evalray.cli.report import Report

mlflow_app = typer.Typer(cls=Group, help="Fill an MLflow store from what is on disk.", no_args_is_help=True)


@mlflow_app.callback()
def mlflow() -> None:
    """The tracking store."""


@mlflow_app.command(no_args_is_help=True)
def sync(
    ctx: typer.Context,
    run_dir: Annotated[
        Path, typer.Argument(metavar="RUN_DIR", help="Sweep directory, or a run directory in it.")
    ],
    tracking_uri: Annotated[
        str | None,
        typer.Option("--tracking-uri", metavar="URI", help="MLflow store or server (the sweep's own)."),
    ] = None,
) -> int:
    """Log a sweep to MLflow again: after a server was down, or into another one."""
    from evalray.api import sync_tracking

    report: Report = ctx.obj
    for line in sync_tracking(run_dir, tracking_uri=tracking_uri):
        report.say(line)
    return 0
