"""``evalray hardware``: the peaks that MFU and MBU are measured against."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from evalray.cli.groups import Group
from evalray.cli.report import Report

hardware_app = typer.Typer(
    cls=Group, help="The peaks that MFU and MBU are measured against.", no_args_is_help=True
)


@hardware_app.command("probe")
def probe(
    ctx: typer.Context,
    device: Annotated[str, typer.Option("--device", metavar="cpu|cuda:N", help="What to measure.")] = "cpu",
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="CPU threads; all usable ones by default.")
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, max=60, help="How long to measure, about.")
    ] = 6.0,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Measure anew instead of showing the last.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> int:
    """Measure what this machine achieves: matrix-product FLOP/s and read bandwidth.  Takes some seconds.

    Kept in EVALRAY_CACHE (or the user's cache folder) and used where the hardware table has no row.  What was
    measured on a busy machine is measured again the next time.
    """
    from evalray.cli.tables import listing
    from evalray.telemetry import cached_probe

    report: Report = ctx.obj
    result = cached_probe(device, threads, refresh=refresh, budget_seconds=seconds)
    report.fields["probe"] = asdict(result)
    report.show(*listing(("figure", "achievable", "spread", "how"), result.rows(), report.width))
    if result.is_noisy:
        report.say("the repeats differ widely, as on a busy machine: run it again when it is idle")
    return 0
