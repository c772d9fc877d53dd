"""The flags of ``run``, declared once, and the decorator that gives a command a group of them.

Names and short names are OpenJarvis's where it has them.  ``None`` means "not given": the suite,
the benchmark or the built-in default decides.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer import Option

_WHAT = "What to run"
_HOW = "How to sample"
_WHERE = "Where results go"
_CONTROL = "Control"


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionFlags:
    """What a sweep is made of: shared by ``run`` and ``plan``."""

    config: Annotated[
        Path | None,
        Option("--config", "-c", metavar="FILE", help="Suite file, TOML or JSON.", rich_help_panel=_WHAT),
    ] = None
    benchmark: Annotated[
        list[str] | None,
        Option(
            "--benchmark",
            "-b",
            metavar="NAME",
            help="Benchmark; with -c, run only this one. Repeatable.",
            rich_help_panel=_WHAT,
        ),
    ] = None
    model: Annotated[
        list[str] | None,
        Option(
            "--model",
            "-m",
            metavar="NAME",
            help="Model; with -c, run only this one. Repeatable.",
            rich_help_panel=_WHAT,
        ),
    ] = None
    engine: Annotated[
        str | None,
        Option("--engine", "-e", metavar="NAME", help="Engine of every model.", rich_help_panel=_WHAT),
    ] = None
    base_url: Annotated[
        str | None,
        Option("--base-url", metavar="URL", help="Server of a network engine.", rich_help_panel=_WHAT),
    ] = None
    data: Annotated[
        str | None,
        Option(
            "--data",
            metavar="PATH",
            help="Local file, glob, folder or hub name in place of the benchmark's own data.",
            rich_help_panel=_WHAT,
        ),
    ] = None
    split: Annotated[
        str | None, Option("--split", metavar="NAME", help="Dataset split.", rich_help_panel=_WHAT)
    ] = None
    max_samples: Annotated[
        int | None,
        Option("--max-samples", "-n", metavar="N", help="Samples per benchmark.", rich_help_panel=_WHAT),
    ] = None
    backend: Annotated[
        str | None,
        Option("--backend", metavar="NAME", help="jarvis-direct or jarvis-agent.", rich_help_panel=_WHAT),
    ] = None
    agent: Annotated[
        str | None,
        Option("--agent", metavar="NAME", help="Agent of the jarvis-agent backend.", rich_help_panel=_WHAT),
    ] = None
    tools: Annotated[
        str | None,
        Option("--tools", metavar="A,B", help="Tools of the agent, comma-separated.", rich_help_panel=_WHAT),
    ] = None
    temperature: Annotated[
        float | None, Option("--temperature", metavar="T", help="Sampling temperature.", rich_help_panel=_HOW)
    ] = None
    max_tokens: Annotated[
        int | None,
        Option("--max-tokens", metavar="N", help="Output tokens per sample.", rich_help_panel=_HOW),
    ] = None
    seed: Annotated[
        int | None, Option("--seed", metavar="N", help="Seed of the sample order.", rich_help_panel=_HOW)
    ] = None
    max_workers: Annotated[
        int | None,
        Option(
            "--max-workers", "-w", metavar="N", help="Requests in flight per replica.", rich_help_panel=_HOW
        ),
    ] = None
    max_cost_usd: Annotated[
        float | None,
        Option(
            "--max-cost-usd", metavar="USD", help="Stop the sweep at this cost.", rich_help_panel=_CONTROL
        ),
    ] = None
    max_tokens_total: Annotated[
        int | None,
        Option(
            "--max-tokens-total",
            metavar="N",
            help="Stop the sweep at so many tokens, prompts and answers.",
            rich_help_panel=_CONTROL,
        ),
    ] = None
    judge_model: Annotated[
        str | None,
        Option("--judge-model", metavar="NAME", help="Model of the LLM judge.", rich_help_panel=_HOW),
    ] = None
    judge_engine: Annotated[
        str | None,
        Option("--judge-engine", metavar="NAME", help="Engine of the judge (cloud).", rich_help_panel=_HOW),
    ] = None
    judge_base_url: Annotated[
        str | None,
        Option("--judge-base-url", metavar="URL", help="Server of the judge.", rich_help_panel=_HOW),
    ] = None
    output: Annotated[
        Path | None,
        Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Also write a single run's rows (JSONL) here.",
            rich_help_panel=_WHERE,
        ),
    ] = None
    output_dir: Annotated[
        Path | None,
        Option(
            "--output-dir",
            metavar="DIR",
            help="Parent of the sweep directory (results).",
            rich_help_panel=_WHERE,
        ),
    ] = None
    sweep_id: Annotated[
        str | None,
        Option(
            "--sweep-id",
            metavar="NAME",
            help="Name of the sweep directory (the suite's name).",
            rich_help_panel=_WHERE,
        ),
    ] = None
    tracking_uri: Annotated[
        str | None,
        Option("--tracking-uri", metavar="URI", help="MLflow store or server.", rich_help_panel=_WHERE),
    ] = None
    telemetry: Annotated[
        bool | None,
        Option(
            "--telemetry/--no-telemetry",
            help="Measure energy and utilisation of local engines; on by default.",
            rich_help_panel=_WHERE,
        ),
    ] = None
    prometheus_port: Annotated[
        int | None,
        Option(
            "--prometheus-port",
            metavar="PORT",
            help="Serve the sweep's live metrics to Prometheus; 0 takes any free port.",
            rich_help_panel=_WHERE,
        ),
    ] = None
    no_tracking: Annotated[
        bool, Option("--no-tracking", help="Log nothing to MLflow.", rich_help_panel=_WHERE)
    ] = False
    address: Annotated[
        str | None,
        Option(
            "--address",
            metavar="ADDRESS",
            help="Ray cluster to join: auto, host:port or ray://…; otherwise Ray starts here.",
            rich_help_panel=_CONTROL,
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlFlags:
    """How a sweep is carried out."""

    fresh: Annotated[
        bool,
        Option("--fresh", help="Start a new sweep beside an earlier one.", rich_help_panel=_CONTROL),
    ] = False
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show the plan and start nothing.", rich_help_panel=_CONTROL)
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFlags:
    """How a command talks.  Read before parsing as well, so that usage errors obey them too."""

    json: Annotated[
        bool,
        Option("--json", help="One JSON object on stdout, all else on stderr.", rich_help_panel=_CONTROL),
    ] = False
    verbose: Annotated[
        bool, Option("--verbose", "-v", help="Debug log, and tracebacks.", rich_help_panel=_CONTROL)
    ] = False


def takes(*groups: type[Any]) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Give a command the options of the ``groups``: it is called with the context and one filled group each."""

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        hints = {group: get_type_hints(group, include_extras=True) for group in groups}

        def run(ctx: typer.Context, **values: Any) -> int:
            return command(
                ctx.obj, *(group(**{name: values[name] for name in hints[group]}) for group in groups)
            )

        parameters = [
            inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context),
            *(
                inspect.Parameter(
                    item.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=None if item.default is MISSING else item.default,
                    annotation=hints[group][item.name],
                )
                for group in groups
                for item in fields(group)
            ),
        ]
        run.__name__ = command.__name__
        # Help keeps line ends as they are: a paragraph of the source becomes one line.
        run.__doc__ = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(command) or "")
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return decorate
