"""How a sweep ends on the command line: its table, where its files are, what to do next."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from evalray.cli.report import Report
from evalray.cli.tables import cache_lines, energy_lines, rate_lines, reasons, results_lines
from evalray.cli.text import safe_line
from evalray.cli.wrapping import unbroken
from evalray.plan import Plan
from evalray.runtime.progress import SweepProgress
from evalray.runtime.result import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_SKIPPED,
    EXIT_STOPPED,
    RunOutcome,
    SweepResult,
)
from evalray.wording import counted

_ENDED = ("complete", "failed", "skipped")
_VERDICT = {
    EXIT_DONE: ("done", "bold green"),
    EXIT_STOPPED: ("stopped before its end; what is done is kept", "bold red"),
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
        if rates := rate_lines(result.runs):
            parts += [*rates, Text()]
        if cached := cache_lines(result.runs):
            parts += [*cached, Text()]
        if measured := energy_lines(result.runs):
            parts += [*measured, Text()]
        parts += reasons(result.runs)
    told = {f"{run.benchmark} on {run.model}: {run.reason}" for run in result.runs}
    told |= {run.reason for run in result.runs}
    parts += [Text(safe_line(error, 1_000), "red") for error in result.errors if error not in told]
    verdict, style = _verdict(result)
    parts.append(Text(verdict, style))
    parts.append(unbroken(f"  files   {result.directory.absolute()}"))
    report = result.directory / "report.html"
    if report.is_file():
        parts.append(unbroken(f"  report  {report.absolute()}"))
    if result.untracked:
        parts.append(Text(f"  mlflow  {safe_line(result.untracked, 1_000)}", "yellow"))
    elif plan.tracking_enabled:
        parts.append(unbroken(f"  mlflow  {_tracking_hint(plan)}"))
    if _can_continue(result):
        parts.append(unbroken(f"  resume  {resume_command(args, result.larger_budget)}", "bold"))
        if result.larger_budget:
            parts.append(
                Text("          what was used before counts: any budget that is larger will do", "dim")
            )
    elif any(run.status == "failed" for run in result.runs):
        parts.append(unbroken(f"  again   {resume_command(args)}   (once the cause above is mended)", "bold"))
    return parts


def _verdict(result: SweepResult) -> tuple[str, str]:
    """The last word and its style; of failed runs, how they failed."""
    if result.exit_code == EXIT_SKIPPED and result.nothing_ran:
        return "nothing could run: all of the suite was skipped", "bold yellow"
    if result.exit_code != EXIT_FAILED:
        return _VERDICT.get(result.exit_code, (f"exit code {result.exit_code}", "bold"))
    failed = [run for run in result.runs if run.status == "failed"]
    if not failed:
        return "ended with errors; what is done is kept", "bold red"
    unmeasured = sum(run.summary is None for run in failed)
    empty = sum(run.summary is not None and not run.summary.scored_samples for run in failed)
    over = len(failed) - unmeasured - empty
    parts = [
        f"{number} {what}"
        for number, what in (
            (unmeasured, "could not start"),
            (empty, "without one scored sample"),
            (over, "with too many errors"),
        )
        if number
    ]
    return f"{len(failed)} of {counted(len(result.runs), 'run')} failed: {', '.join(parts)}", "bold red"


def _tracking_hint(plan: Plan) -> str:
    if plan.tracking_uri and plan.tracking_uri.startswith(("http://", "https://")):
        return safe_line(plan.tracking_uri)
    return shlex.join(["evalray", "ui", str(plan.directory.absolute())])


def _can_continue(result: SweepResult) -> bool:
    stopped = result.exit_code in (EXIT_STOPPED, EXIT_INTERRUPTED)
    return stopped or any(run.status == "partial" for run in result.runs)


def resume_command(args: Sequence[str], budget: Mapping[str, float] | None = None) -> str:
    """The command that continues this sweep: the same again, but for ``--fresh``, and with ``budget``.

    ``budget`` is a limit by its flag's name, in place of the one that ``args`` may give.
    """
    kept = [arg for arg in args if arg != "--fresh"]
    for flag, limit in (budget or {}).items():
        kept = [*_without_option(kept, flag), flag, f"{limit:.15g}"]
    return shlex.join(["evalray", *kept])


def _without_option(args: Sequence[str], flag: str) -> list[str]:
    """``args`` without ``flag VALUE`` and ``flag=VALUE``."""
    kept: list[str] = []
    skip = False
    for arg in args:
        if not skip and arg != flag and not arg.startswith(f"{flag}="):
            kept.append(arg)
        skip = not skip and arg == flag
    return kept


def last_words(report: Report, progress: SweepProgress) -> None:
    """Of a sweep that is ended on the spot: how to go on, and the JSON object: how far it came.

    Runs in a signal handler: writes past the buffers, which may be in use.
    """
    command = resume_command(report.args)
    said = (
        f"\nevalray: interrupted twice: nothing was waited for; what is done is kept\n  resume  {command}\n"
    )
    with suppress(OSError):
        os.write(2, said.encode("utf-8", "backslashreplace"))
    report.exit_code = 130
    report.errors.append("interrupted twice: nothing was waited for; the same command continues")
    report.fields["runs"] = [
        {
            "benchmark": run.benchmark,
            "model": run.model,
            "status": run.state if run.state in _ENDED else "partial",
            "reason": run.message,
            "results": None,
            "summary": None,
            "accuracy": run.accuracy,
            "outcomes": dict(run.outcomes),
        }
        for run in progress.runs
    ]
    report.write()
