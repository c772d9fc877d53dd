"""``evalray summarize``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evalray.cli.report import Report


def summarize(
    ctx: typer.Context,
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="Sweep directory, run directory or results .jsonl.")
    ],
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> int:
    """Recompute a run's or sweep's results from its journal, rewrite them, and show the table."""
    from evalray.api import summarize_path
    from evalray.cli.ending import report_fields
    from evalray.cli.tables import cache_lines, energy_lines, rate_lines, reasons, results_lines

    report: Report = ctx.obj
    result = summarize_path(path)
    report.fields |= report_fields(result)
    report.errors += result.errors
    if path.is_file() and path.absolute().parent != result.directory:
        report.say(f"{path} is a copy: recomputed is {result.directory}, where its rows come from")
    runs = result.runs
    parts = rate_lines(runs), cache_lines(runs), energy_lines(runs), reasons(runs)
    report.show(*results_lines(runs, report.width), *(line for part in parts for line in part))
    return result.exit_code
