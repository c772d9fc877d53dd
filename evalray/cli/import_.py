"""``evalray import``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evalray.cli.report import Report


def import_(
    ctx: typer.Context,
    path: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="OpenJarvis's .jsonl or .summary.json, or a folder of them."),
    ],
    output_dir: Annotated[
        Path, typer.Option("--output-dir", metavar="DIR", help="Folder of the sweeps.")
    ] = Path("results"),
    sweep_id: Annotated[
        str, typer.Option("--sweep-id", metavar="NAME", help="Sweep the runs become part of.")
    ] = "imported",
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> int:
    """Bring OpenJarvis's results into a run directory, for summarize, compare, reports and MLflow.

    Bad rows are counted, named and left out. Importing the same file again changes nothing.
    """
    from evalray.cli.ending import report_fields
    from evalray.cli.tables import reasons, results_lines
    from evalray.importing import import_path
    from evalray.runtime.result import EXIT_DONE, RunOutcome, SweepResult

    report: Report = ctx.obj
    imported = import_path(path, output_dir=output_dir, sweep_id=sweep_id)
    for skipped in imported.skipped:
        report.say(f"not imported: {skipped}")
    result = SweepResult(imported.directory.name, imported.directory, EXIT_DONE)
    for run in imported.runs:
        report.say(f"{run.source.name}: {'already in' if run.unchanged else 'imported as'} {run.directory}")
        summary = run.summary
        result.runs.append(
            RunOutcome(summary.benchmark, summary.model, run.status, run.results, run.summary_path, summary)
        )
    report.fields |= report_fields(result) | {"not_imported": imported.skipped}
    report.show(*results_lines(result.runs, report.width), *reasons(result.runs))
    return result.exit_code
