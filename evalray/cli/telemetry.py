"""``evalray telemetry``: what the devices used in a finished run or sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evalray.cli.report import Report


def telemetry(
    ctx: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A sweep's folder or a run's.")],
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="FILE", help="Draw the run's power and requests in flight: .svg or .png."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> int:
    """Show energy, MFU and MBU of finished runs, where each device's joules went, and plots of their power."""
    from evalray.cli.tables import listing
    from evalray.telemetry_report import telemetry_report

    report: Report = ctx.obj
    found = telemetry_report(path, plot)
    report.fields |= {"runs": found.runs, "plots": found.plots, "plot": found.written}
    for table in found.tables:
        report.show(*listing(table.head, table.rows, report.width))
    for note in found.notes:
        report.say(note)
    for line in found.plot_lines():
        report.say(line)
    return 0
