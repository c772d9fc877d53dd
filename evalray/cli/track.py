"""``evalray mlflow``: the tracking store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evalray.cli.groups import Group
from evalray.cli.report import Report
from evalray.cli.text import safe_text

mlflow_app = typer.Typer(cls=Group, help="Fill an MLflow store from what is on disk.", no_args_is_help=True)


@mlflow_app.callback()
def mlflow() -> None:
    """The tracking store."""


@mlflow_app.command(no_args_is_help=True)
def sync(
    ctx: typer.Context,
    path: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="Sweep directory, a folder of some, or a run directory."),
    ],
    tracking_uri: Annotated[
        str | None,
        typer.Option("--tracking-uri", metavar="URI", help="MLflow store or server (the sweep's own)."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> int:
    """Log sweeps to MLflow again: after a server was down, or into another one.

    Exit code 1 where one could not be sent; the others are.
    """
    from evalray.api import sync_tracking

    report: Report = ctx.obj
    done = sync_tracking(path, tracking_uri=tracking_uri)
    report.fields["sweeps"] = [sweep.fields() for sweep in done]
    for sweep in done:
        prefix = f"{sweep.directory.name}: " if len(done) > 1 else ""
        for line in sweep.lines():
            report.say(f"{prefix}{line}")
        if sweep.error is not None:
            report.error(safe_text(f"{prefix}{sweep.error}"))
    return 1 if any(sweep.error for sweep in done) else 0
