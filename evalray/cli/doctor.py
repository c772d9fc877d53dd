"""``evalray doctor``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from evalray.cli.report import Report


def doctor(
    ctx: typer.Context,
    output_dir: Annotated[
        Path, typer.Option("--output-dir", metavar="DIR", help="Folder that sweeps would be written to.")
    ] = Path("results"),
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> int:
    """Show what is installed and what is missing, and what to do about each gap.

    Exit code 1 if something is missing without which no sweep can run.
    """
    from evalray.cli.tables import doctor_table
    from evalray.doctor import examine

    report: Report = ctx.obj
    checks = examine(output_dir)
    problems = [check for check in checks if check.status == "problem"]
    report.fields["checks"] = [asdict(check) for check in checks]
    report.show(doctor_table(checks))
    for check in problems:
        report.error(f"{check.name}: {check.detail} ({check.advice})")
    return 1 if problems else 0
