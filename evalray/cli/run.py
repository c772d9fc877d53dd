"""``evalray run`` and ``evalray plan``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from evalray.cli.flags import ControlFlags, OutputFlags, SelectionFlags, takes
from evalray.cli.report import Report

if TYPE_CHECKING:
    from evalray.plan import Plan


@takes(SelectionFlags, ControlFlags, OutputFlags)
def run(report: Report, selection: SelectionFlags, control: ControlFlags, output: OutputFlags) -> int:
    """Run a suite (-c FILE), or one benchmark on one model (-b NAME -m NAME).

    The same command again continues a sweep that was stopped.

    Exit codes: 0 done; 1 a run failed: it could not start, nothing was scored, or too many errors; 2 bad
    usage or configuration; 3 stopped before its end (circuit breaker, full disk, Ray lost), resumable; 4 done, but
    cells were skipped, or the budget was reached, resumable; 130 interrupted, resumable.
    """
    return carry_out(report, _make_plan(selection), control, output)


def carry_out(report: Report, the_plan: Plan, control: ControlFlags, output: OutputFlags) -> int:
    """Run a plan, or show it; the exit code."""
    report.fields |= {"sweep_id": the_plan.sweep_id, "dir": str(the_plan.directory.absolute())}
    if control.dry_run:
        return _show_plan(report, the_plan)

    from evalray.api import run_plan
    from evalray.cli.display import open_display
    from evalray.cli.ending import ending, last_words, report_fields
    from evalray.cli.logs import logs_to
    from evalray.runtime.progress import SweepProgress

    progress = SweepProgress(sweep_id=the_plan.sweep_id)
    with open_display(progress) as display, logs_to(display, verbose=output.verbose):
        result = run_plan(
            the_plan,
            fresh=control.fresh,
            progress=progress,
            on_message=display.message,
            on_kill=lambda: last_words(report, progress),
        )
    report.fields |= report_fields(result) | {"prometheus_url": progress.prometheus_url}
    report.errors += result.errors
    report.show(*ending(result, the_plan, report.args, report.width))
    return result.exit_code


@takes(SelectionFlags, OutputFlags)
def plan(report: Report, selection: SelectionFlags, output: OutputFlags) -> int:
    """Show what `run` would run, and where.  Starts nothing; needs no GPU, network or key."""
    the_plan = _make_plan(selection)
    report.fields |= {"sweep_id": the_plan.sweep_id, "dir": str(the_plan.directory.absolute())}
    return _show_plan(report, the_plan)


def _make_plan(selection: SelectionFlags) -> Plan:
    from evalray.api import plan_suite

    return plan_suite(selection.config, **given_flags(selection))


def given_flags(selection: SelectionFlags) -> dict[str, Any]:
    """The flags as overrides of a suite, but for which suite it is."""
    flags: dict[str, Any] = asdict(selection)
    no_tracking = flags.pop("no_tracking")
    del flags["config"]
    return {**flags, "tracking_enabled": False if no_tracking else None}


def _show_plan(report: Report, the_plan: Plan) -> int:
    from evalray.cli.plan_text import plan_fields, plan_lines

    report.fields |= plan_fields(the_plan)
    report.show(*plan_lines(the_plan))
    return 0
