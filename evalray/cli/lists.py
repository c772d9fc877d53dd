"""``evalray list``: what a suite can name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from evalray.cli.groups import Group
from evalray.cli.report import Report

list_app = typer.Typer(cls=Group, help="What a suite can name.", invoke_without_command=True)

_Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]


def _show(report: Report, key: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> int:
    from evalray.cli.tables import listing

    report.fields[key] = [dict(zip(columns, row, strict=True)) for row in rows]
    report.show(*listing(columns, rows, report.width))
    return 0


@list_app.callback()
def everything(ctx: typer.Context, json: _Json = False) -> int:
    """What a suite can name: without a subcommand, the benchmarks and the backends."""
    if ctx.invoked_subcommand is not None:
        return 0
    from evalray.catalog import known_backends, known_benchmarks

    _show(ctx.obj, "benchmarks", ("name", "category", "scorer", "where", "title"), known_benchmarks())
    return _show(ctx.obj, "backends", ("name", "description"), known_backends())


@list_app.command("backends")
def backends(ctx: typer.Context, json: _Json = False) -> int:
    """Backends: what stands between a benchmark and a model's engine."""
    from evalray.catalog import known_backends

    return _show(ctx.obj, "backends", ("name", "description"), known_backends())


@list_app.command("benchmarks")
def benchmarks(ctx: typer.Context, json: _Json = False) -> int:
    """Benchmarks on the search path: ./benchmarks, EVALRAY_BENCHMARKS, the packaged ones."""
    from evalray.catalog import known_benchmarks

    return _show(ctx.obj, "benchmarks", ("name", "category", "scorer", "where", "title"), known_benchmarks())


@list_app.command("engines")
def engines(ctx: typer.Context, json: _Json = False) -> int:
    """Engines of this version."""
    from evalray.catalog import known_engines

    return _show(ctx.obj, "engines", ("name", "in flight per replica", "description"), known_engines())


@list_app.command("scorers")
def scorers(ctx: typer.Context, json: _Json = False) -> int:
    """Scorers of this version; a suite may also name its own as module:Class."""
    from evalray.catalog import known_scorers

    return _show(ctx.obj, "scorers", ("name", "arguments", "description"), known_scorers())


@list_app.command("models")
def models(ctx: typer.Context, json: _Json = False) -> int:
    """Models named by the suites in ./configs, and model files that installed packages carry.

    Any other model that an engine can load or a server offers can be run as well.
    """
    from evalray.catalog import known_models

    return _show(ctx.obj, "models", ("name", "engine", "source", "named by"), known_models())
