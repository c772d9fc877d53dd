"""``evalray ui``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evalray.cli.report import Report


def ui(
    ctx: typer.Context,
    path: Annotated[
        Path | None,
        typer.Argument(metavar="[PATH]", help="Results folder or sweep directory.", show_default=False),
    ] = None,
    output_dir: Annotated[
        Path, typer.Option("--output-dir", metavar="DIR", help="Results folder, where no PATH is given.")
    ] = Path("results"),
    tracking_uri: Annotated[
        str | None, typer.Option("--tracking-uri", metavar="URI", help="Another MLflow store or server.")
    ] = None,
    port: Annotated[int, typer.Option("--port", help="Port to listen on.", min=1, max=65535)] = 5000,
) -> int:
    """Open the MLflow store of a results folder in the browser's reach.  Ctrl-C ends it."""
    from evalray.api import serve_ui, tracking_store

    report: Report = ctx.obj
    uri = tracking_store(path or output_dir, tracking_uri=tracking_uri)
    return serve_ui(uri, port=port, on_message=report.say)
