"""How a sweep ends on the command line: its table, where its files are, what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from evalray.cli.tables import energy_lines, reasons, results_lines
from evalray.cli.text import safe_line
from evalray.plan import Plan
from evalray.runtime.result import (
    EXIT_BREAKER,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_SKIPPED,
    RunOutcome,
    SweepResult,
)

_VERDICT = {
    EXIT_DONE: ("done", "bold green"),
    EXIT_FAILED: ("done, but a run failed its error threshold or nothing succeeded", "bold red"),
    EXIT_BREAKER: ("stopped by the circuit breaker; what is done is kept", "bold red"),
    EXIT_SKIPPED: ("done, but some of the suite was skipped", "bold yellow"),
    EXIT_INTERRUPTED: ("interrupted; what is done is kept", "bold yellow"),
}


def report_fields(result: SweepResult) -> dict[str, Any]:
    """The fields of the JSON object that come from a sweep."""
    return {
        "sweep_id": result.sweep_id,
        "dir": str(result.directory.absolute()),
        "runs": [_run_fields(run) for run in result.runs],
    }


def _run_fields(run: RunOutcome) -> dict[str, Any]:
    return {
        "benchmark": run.benchmark,
        "model": run.model,
        "status": run.status,
        "reason": run.reason,
        "results": str(run.results.absolute()) if run.results else None,
        "summary": str(run.summary_path.absolute()) if run.summary_path else None,
        "accuracy": run.summary.accuracy if run.summary else None,
        "outcomes": dict(run.summary.outcomes) if run.summary else {},
    }


def ending(result: SweepResult, plan: Plan, args: Sequence[str], width: int) -> list[RenderableType]:
    """What is printed after a sweep, for a person."""
    parts: list[RenderableType] = []
    if result.runs:
        parts += [Text(), *results_lines(result.runs, width), Text()]
        if measured := energy_lines(result.runs):
            parts += [*measured, Text()]
        parts += reasons(result.runs)
    parts += [Text(safe_line(error, 1_000), "red") for error in result.errors]
    verdict, style = _VERDICT.get(result.exit_code, (f"exit code {result.exit_code}", "bold"))
    parts.append(Text(verdict, style))
    parts.append(Text(f"  files   {result.directory.absolute()}"))
    report = result.directory / "report.html"
    if report.is_file():
        parts.append(Text(f"  report  {report.absolute()}"))
    if plan.tracking_enabled:
        parts.append(Text(f"  mlflow  {_tracking_hint(plan)}"))
    if _can_continue(result):
        parts.append(Text(f"  resume  {resume_command(args)}", "bold"))
    return parts


def _tracking_hint(plan: Plan) -> str:
    if plan.tracking_uri and plan.tracking_uri.startswith(("http://", "https://")):
        return safe_line(plan.tracking_uri)
    return shlex.join(["evalray", "ui", str(plan.directory.absolute())])


def _can_continue(result: SweepResult) -> bool:
    stopped = result.exit_code in (EXIT_BREAKER, EXIT_INTERRUPTED)
    return stopped or any(run.status in ("partial", "failed") for run in result.runs)


def resume_command(args: Sequence[str]) -> str:
    """The command that continues this sweep: the same again, but for ``--fresh``."""
    return shlex.join(["evalray", *(arg for arg in args if arg != "--fresh")])
