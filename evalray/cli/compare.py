"""``evalray compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evalray.cli.report import Report


def compare(
    ctx: typer.Context,
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="A B...", help="Runs or sweeps; A is what the others are compared with."),
    ],
    allow_different: Annotated[
        bool,
        typer.Option(
            "--allow-different",
            "--force",
            help="Compare other benchmarks, prompts, data or scorers all the same.",
        ),
    ] = False,
    fail_on_regression: Annotated[
        bool,
        typer.Option("--fail-on-regression", help="Exit 1 where B is significantly worse than A; for CI."),
    ] = False,
    threshold: Annotated[
        float,
        typer.Option(
            "--threshold",
            metavar="X",
            help="Drop of accuracy that is no regression yet, e.g. 0.01 for a point.",
        ),
    ] = 0.0,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the bootstrap.", min=0)] = 0,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> int:
    """Compare runs record by record: differences with intervals, per subject, and what they cost.

    Exit codes: 0 compared; 1 a regression, with --fail-on-regression; 2 these runs cannot be
    compared, or share too few records to tell.
    """
    from evalray.cli.compare_tables import comparison_lines
    from evalray.compare import compare_paths

    report: Report = ctx.obj
    result = compare_paths(
        paths[0],
        paths[1:],
        allow_different=allow_different,
        regression_threshold=threshold if fail_on_regression else None,
        seed=seed,
    )
    report.fields |= result.fields()
    report.show(*comparison_lines(result))
    return 1 if result.regression else 0
