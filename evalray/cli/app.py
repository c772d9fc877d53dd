"""The commands, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from evalray.cli.compare import compare
from evalray.cli.doctor import doctor
from evalray.cli.groups import Group
from evalray.cli.hardware import hardware_app
from evalray.cli.import_ import import_
from evalray.cli.lists import list_app
from evalray.cli.rescore import rescore
from evalray.cli.run import plan, run
from evalray.cli.run_all import run_all
from evalray.cli.summarize import summarize
from evalray.cli.telemetry import telemetry
from evalray.cli.track import mlflow_app
from evalray.cli.ui import ui

app = typer.Typer(
    cls=Group,
    name="evalray",
    help="Large model × benchmark sweeps on a Ray cluster.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from evalray import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and leave.", is_eager=True, callback=_show_version),
    ] = False,
) -> None:
    """Large model × benchmark sweeps on a Ray cluster."""


for command in (run, plan, summarize, ui, doctor):
    app.command(no_args_is_help=command in (run, plan, summarize))(command)
app.command("run-all", no_args_is_help=True)(run_all)
app.command("rescore", no_args_is_help=True)(rescore)
app.command("compare", no_args_is_help=True)(compare)
app.command("telemetry", no_args_is_help=True)(telemetry)
app.command("import", no_args_is_help=True)(import_)
app.add_typer(hardware_app, name="hardware")
app.add_typer(list_app, name="list")
app.add_typer(mlflow_app, name="mlflow")
