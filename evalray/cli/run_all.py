"""``evalray run-all``: every benchmark against a model."""

from __future__ import annotations

from evalray.cli.flags import ControlFlags, OutputFlags, SelectionFlags, takes
from evalray.cli.report import Report
from evalray.cli.run import carry_out, given_flags
from evalray.errors import ConfigError, Problem


@takes(SelectionFlags, ControlFlags, OutputFlags)
def run_all(report: Report, selection: SelectionFlags, control: ControlFlags, output: OutputFlags) -> int:
    """Run every benchmark there is against a model (-m NAME, repeatable).

    Takes the flags of `run`; -b leaves only the benchmarks it names. What is gated or cannot run here is
    skipped and said. Exit codes as for `run`.
    """
    if selection.config is not None:
        hint = "run -c FILE, or run-all -m MODEL"
        raise ConfigError([Problem("command line", "--config", "run-all takes no suite", hint)])
    if not selection.model:
        raise ConfigError([Problem("command line", "--model", "missing", "-m MODEL is needed")])
    from evalray.api import plan_all

    flags = given_flags(selection)
    the_plan = plan_all(flags.pop("model"), flags.pop("benchmark"), **flags)
    return carry_out(report, the_plan, control, output)
