"""``evalray rescore``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evalray.cli.report import Report


def rescore(
    ctx: typer.Context,
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="Sweep directory, run directory or results .jsonl.")
    ],
    judge_model: Annotated[
        str | None, typer.Option("--judge-model", metavar="NAME", help="Ask this judge.")
    ] = None,
    judge_engine: Annotated[
        str | None, typer.Option("--judge-engine", metavar="NAME", help="Engine of the judge.")
    ] = None,
    judge_base_url: Annotated[
        str | None, typer.Option("--judge-base-url", metavar="URL", help="Server of the judge.")
    ] = None,
    scorer: Annotated[
        str | None, typer.Option("--scorer", metavar="NAME", help="Score with this scorer.")
    ] = None,
    reask: Annotated[
        bool, typer.Option("--reask", help="Ask the judge again about everything it decides.")
    ] = False,
    no_tracking: Annotated[bool, typer.Option("--no-tracking", help="Log nothing to MLflow.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Debug log, and tracebacks.")] = False,
) -> int:
    """Give runs new verdicts from the generations they have. Nothing is generated.

    Rules are applied anew. What a judge replied before is read again; a judge that is named, or --reask,
    asks again. Earlier verdicts are kept beside.
    """
    from evalray.api import rescore_path
    from evalray.cli.display import open_display
    from evalray.cli.ending import ending, last_words, report_fields
    from evalray.cli.logs import logs_to
    from evalray.runtime.progress import SweepProgress

    report: Report = ctx.obj
    progress = SweepProgress()
    with open_display(progress) as display, logs_to(display, verbose=verbose):
        plan, result = rescore_path(
            path,
            judge_model=judge_model,
            judge_engine=judge_engine,
            judge_base_url=judge_base_url,
            scorer=scorer,
            reask=reask,
            tracking_enabled=False if no_tracking else None,
            progress=progress,
            on_message=display.message,
            on_kill=lambda: last_words(report, progress),
        )
    report.fields |= report_fields(result)
    report.errors += result.errors
    report.show(*ending(result, plan, report.args, report.width))
    return result.exit_code
