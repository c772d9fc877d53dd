"""``evalray run-all``: every benchmark against a model."""

from __future__ import annotations

from dataclasses import replace

from evalray.cli.flags import ControlFlags, OutputFlags, SelectionFlags, takes
from evalray.cli.report import Report
from evalray.cli.run import carry_out
from evalray.errors import ConfigError, Problem


@takes(SelectionFlags, ControlFlags, OutputFlags)
def run_all(report: Report, selection: SelectionFlags, control: ControlFlags, output: OutputFlags) -> int:
    """Run every benchmark there is against a model (-m NAME, repeatable).

    Takes the flags of `run`; -b leaves only the benchmarks it names. What is gated or cannot run here is
    skipped and said. Exit codes as for `run`.
    """
    from evalray.catalog import runnable_benchmarks
    from evalray.suite import slug

    if selection.config is not None:
        hint = "run -c FILE, or run-all -m MODEL"
        raise ConfigError([Problem("command line", "--config", "run-all takes no suite", hint)])
    if not selection.model:
        raise ConfigError([Problem("command line", "--model", "missing", "-m MODEL is needed")])
    chosen = replace(
        selection,
        benchmark=selection.benchmark or runnable_benchmarks(),
        sweep_id=selection.sweep_id or slug("all_" + "+".join(map(slug, selection.model))),
    )
    return carry_out(report, chosen, control, output)
