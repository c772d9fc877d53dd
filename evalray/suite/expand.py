"""The matrix: a suite's models times its benchmarks, every layer of configuration merged.

The one place where precedence is decided: flags, then the suite's benchmark, its model, its
``[defaults]``, the benchmark's own ``[defaults]``, and what is built in.  The highest layer that
gives a setting wins.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from evalray.benchmarks import SAMPLE
from evalray.definition import Benchmark
from evalray.engines.model_path import packaged_models
from evalray.errors import ConfigError, Problem
from evalray.settings import BUILT_IN, RunDefaults, SamplingSettings, settings_given
from evalray.suite import openjarvis
from evalray.suite.cell import Cell
from evalray.suite.engine_choice import OPENAI_COMPATIBLE, EngineChoice, choose_engine, locate
from evalray.suite.load import suite_from_table
from evalray.suite.models import BenchmarkEntry, ModelEntry, Suite
from evalray.suite.names import slug
from evalray.suite.overrides import COMMAND_LINE, Overrides
from evalray.suite.registry import Registry
from evalray.suite.repeats import repeated_cells
from evalray.types import RunConfig
from evalray.validation import nearest_hint

Entry = TypeVar("Entry", ModelEntry, BenchmarkEntry)

_SAMPLING = frozenset(SamplingSettings.model_fields)
_RUN = frozenset(RunDefaults.model_fields)
_BENCHMARK_ONLY = frozenset({"backend", "agent", "tools", "judge_model", "split", "subset", "data", "scorer"})
#: ``--seed`` shuffles the records; the sampling seed has no flag.
_FLAGS = (
    "backend", "agent", "tools", "max_samples", "split", "temperature", "max_tokens", "judge_model", "data",
)  # fmt: skip

_MODEL_FIGURES = ("param_count_b", "active_params_b", "gpu_peak_tflops", "gpu_peak_bandwidth_gb_s")
#: How the command line gives what an engine lacks, by the key of ``[[models]]``.
_HINTS = {
    "path": "-m FILE.gguf or -m {packaged}; --base-url for a server",
    "base_url": "--base-url http://127.0.0.1:8000/v1",
    "provider": "-e openai or -e anthropic",
}
_MOST_NAMED = 4
_LOCAL_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".arrow", ".gz")


@dataclass(frozen=True, slots=True)
class _Context:
    suite: Suite
    overrides: Overrides
    registry: Registry
    problems: list[Problem] = field(default_factory=list)


def suite_from_flags(
    overrides: Overrides, registry: Registry | None = None, *, name: str | None = None
) -> Suite:
    """Single-run mode: the matrix that ``-b`` and ``-m`` span; both are needed.

    ``name`` is the suite's, in place of one made of all that it spans.  Raises :class:`ConfigError`.
    """
    registry = registry or Registry.installed()
    benchmarks, models = overrides.benchmark or (), overrides.model or ()
    missing = [
        Problem(COMMAND_LINE, flag, "missing", "without -c, both -b BENCHMARK and -m MODEL are needed")
        for flag, names in (("--benchmark", benchmarks), ("--model", models))
        if not names
    ]
    if missing:
        raise ConfigError(missing)
    overrides.check(registry)
    table: dict[str, Any] = {
        "meta": {
            "name": name or slug(f"{'+'.join(benchmarks)}_{'+'.join(map(slug, models))}"),
            "description": f"{_named(benchmarks)} on {_named(models)}",
        },
        "models": [{"name": name} for name in models],
        "benchmarks": [{"name": name} for name in benchmarks],
    }
    try:
        return suite_from_table(table, COMMAND_LINE, registry)
    except ConfigError as error:
        raise ConfigError([_by_flag(problem) for problem in error.problems]) from None


def _named(names: Sequence[str]) -> str:
    """``a, b, c``, or ``a, b and 10 more``."""
    if len(names) <= _MOST_NAMED:
        return ", ".join(names)
    return f"{', '.join(names[: _MOST_NAMED - 1])} and {len(names) - _MOST_NAMED + 1} more"


def _by_flag(problem: Problem) -> Problem:
    for section, flag in (("benchmarks[", "--benchmark"), ("models[", "--model")):
        if problem.key.startswith(section):
            return Problem(problem.source, flag, problem.message, problem.hint)
    return problem


def suite_name(suite: Suite) -> str:
    """``[meta].name``, else the file's name without its extension."""
    return suite.meta.name or (slug(suite.source.stem) if suite.source else "suite")


def expand(suite: Suite, overrides: Overrides | None = None, registry: Registry | None = None) -> list[Cell]:
    """Every cell that is selected, model by model in the order of the suite.

    Raises :class:`ConfigError`: an impossible flag, a selection of what the suite does not have, an
    engine without the address it needs.
    """
    context = _Context(suite, overrides or Overrides(), registry or Registry.installed())
    context.overrides.check(context.registry)
    models = _selected(suite.models, context.overrides.model, "--model", context)
    benchmarks = _selected(suite.benchmarks, context.overrides.benchmark, "--benchmark", context)
    cells = []
    for index, written in models:
        entry = written.model_copy(update=context.overrides.given("engine", "base_url"))
        engine = choose_engine(entry, context.registry, suite.folder)
        context.problems.extend(_missing_values(index, entry, engine, context))
        cells += [_cell(index, entry, engine, benchmark, context) for _, benchmark in benchmarks]
    context.problems.extend(repeated_cells(cells, str(suite.source or COMMAND_LINE)))
    if context.problems:
        raise ConfigError(context.problems)
    return cells


def _missing_values(
    index: int, entry: ModelEntry, engine: EngineChoice, context: _Context
) -> Iterator[Problem]:
    """What a model does not give although its engine cannot be without it.

    A suite's file may be OpenJarvis's, where ``llamacpp`` or ``sglang`` is a server that it finds by
    itself: such a cell is unsupported here, and no mistake.  An engine that was asked of us is one.
    """
    asked_of_us = context.suite.source is None or context.overrides.engine is not None
    if engine.name == OPENAI_COMPATIBLE and entry.base_url is None:
        message = f"missing: {entry.name} on openai-compatible needs its server's address"
        hint = "base_url = 'http://127.0.0.1:8000/v1', or --base-url"
        yield Problem(str(context.suite.source or COMMAND_LINE), f"models[{index}].base_url", message, hint)
    elif engine.missing and asked_of_us:
        hint = _HINTS[engine.missing].format(
            packaged=next(iter(packaged_models()), "package:PACKAGE/FILE.gguf")
        )
        yield Problem(COMMAND_LINE, "--engine", f"{entry.name}: {engine.unsupported}", hint)


def _selected(
    entries: list[Entry], names: Sequence[str] | None, flag: str, context: _Context
) -> list[tuple[int, Entry]]:
    known = [entry.name for entry in entries]
    for name in names or ():
        if name not in known:
            hint = nearest_hint(name, known)
            where = context.suite.source or "the suite"
            context.problems.append(Problem(COMMAND_LINE, flag, f"{name!r} is not in {where}", hint))
    return [(index, entry) for index, entry in enumerate(entries) if not names or entry.name in names]


def merge_layers(
    overrides: Overrides,
    benchmark: BenchmarkEntry,
    model: ModelEntry,
    defaults: RunDefaults,
    own: dict[str, Any],
) -> ChainMap[str, Any]:
    """All the settings of one run, highest layer first; ``own`` are the benchmark's defaults."""
    return ChainMap(
        overrides.given(*_FLAGS),
        _only(settings_given(benchmark), _RUN | _BENCHMARK_ONLY),
        _only(settings_given(model), _SAMPLING),
        settings_given(defaults),
        own,
        BUILT_IN,
    )


def _only(layer: dict[str, Any], keys: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in layer.items() if key in keys}


def _cell(
    index: int, model: ModelEntry, engine: EngineChoice, entry: BenchmarkEntry, context: _Context
) -> Cell:
    suite, overrides, registry = context.suite, context.overrides, context.registry
    listing = registry.benchmarks.get(entry.name)
    benchmark = listing.benchmark if listing else None
    merged = merge_layers(overrides, entry, model, suite.defaults, benchmark.defaults if benchmark else {})
    scorer = merged.get("scorer") or (benchmark.scorer if benchmark else "")
    config = RunConfig(
        benchmark=entry.name,
        backend=merged.get("backend") or openjarvis.DIRECT_BACKEND,
        model=model.name,
        max_samples=merged.get("max_samples"),
        max_workers=overrides.max_workers or suite.run.max_workers,
        temperature=float(merged["temperature"]),
        max_tokens=merged["max_tokens"],
        judge_model=merged.get("judge_model") or suite.judge.model,
        engine_key=engine.name,
        agent_name=merged.get("agent"),
        tools=list(merged.get("tools") or ()),
        output_path=str(overrides.output) if overrides.output else None,
        seed=suite.run.seed if overrides.seed is None else overrides.seed,
        telemetry=suite.run.telemetry if overrides.telemetry is None else overrides.telemetry,
        gpu_metrics=suite.run.gpu_metrics if overrides.gpu_metrics is None else overrides.gpu_metrics,
        metadata=_figures(model),
        record_ids=entry.record_ids,
        system_prompt=merged.get("system_prompt") or None,
        top_p=merged.get("top_p"),
        top_k=merged.get("top_k"),
        stop=list(merged["stop"]),
        sampling_seed=merged.get("seed"),
        epochs=merged["epochs"],
        pass_k=sorted(set(merged["pass_k"])),
        num_fewshot=merged["num_fewshot"],
        concurrency=merged.get("concurrency"),
        max_error_rate=float(suite.run.max_error_rate),
        breaker_errors=suite.run.breaker_errors,
        warmup_samples=suite.run.warmup_samples,
        grid_gco2e_per_kwh=suite.telemetry.grid_gco2e_per_kwh,
        scorer=scorer,
        scorer_args=_scorer_args(scorer, entry, benchmark),
        benchmark_args=_benchmark_args(entry, suite.folder),
    )
    notes = [*engine.notes]
    if config.backend == openjarvis.DIRECT_BACKEND:
        idle = [key for key in ("agent", "tools") if merged.get(key)]
        notes += [f"{', '.join(idle)}: not used by the backend {config.backend}"] if idle else []
    if benchmark is not None:
        config.data = _data(overrides, entry, suite.folder, benchmark)
        own_data = config.data is None
        config.dataset_split = merged.get("split") or (benchmark.split if own_data else None)
        config.dataset_subset = merged.get("subset") or (benchmark.subset if own_data else None)
    else:
        config.data = merged.get("data")
        config.dataset_split, config.dataset_subset = merged.get("split"), merged.get("subset")
    if listing is not None and listing.shadows:
        notes.append(f"{entry.name} is {listing.folder}, which hides {listing.shadows[0]}")
    reasons = tuple(_reasons(config, engine, benchmark))
    return Cell(index, model, engine, config, benchmark, reasons, tuple(notes))


def _reasons(config: RunConfig, engine: EngineChoice, benchmark: Benchmark | None) -> list[str]:
    reasons = []
    if benchmark is None:
        reasons.append(f"benchmark {config.benchmark!r} is not available in this version")
    if config.backend != openjarvis.DIRECT_BACKEND:
        reasons.append(f"backend {config.backend!r} is not available in this version")
    if engine.unsupported:
        reasons.append(engine.unsupported)
    return reasons


def _figures(model: ModelEntry) -> dict[str, Any]:
    """The model's hardware figures, as the seed keeps them: only what is known."""
    figures: dict[str, Any] = {key: value for key in _MODEL_FIGURES if (value := getattr(model, key))}
    if model.num_gpus is not None and model.num_gpus > 1:
        figures["num_gpus"] = model.num_gpus
    return figures


def _scorer_args(scorer: str, entry: BenchmarkEntry, benchmark: Benchmark | None) -> dict[str, Any]:
    """The benchmark's arguments apply to its own scorer only; the suite's come on top."""
    own = benchmark.scorer_args if benchmark and benchmark.scorer == scorer else {}
    return {**own, **(entry.scorer_args or {})}


def _benchmark_args(entry: BenchmarkEntry, folder: Path) -> dict[str, Any]:
    """A file or folder beside the suite gets its whole path: a run may start anywhere."""
    return {
        name: str(folder / value)
        if isinstance(value, str) and value and path_or_glob_exists(folder / value)
        else value
        for name, value in (entry.args or {}).items()
    }


def _data(overrides: Overrides, entry: BenchmarkEntry, folder: Path, benchmark: Benchmark) -> str | None:
    """Where the data is: an absolute path or glob, a hub name, or ``None`` for the benchmark's own.

    A path from a flag is relative to the working directory, one from a suite to the suite's file;
    the benchmark's folder comes next, so that ``data = "sample.jsonl"`` is the sample it carries.
    ``sample`` is a word and never a folder of that name, which is written ``./sample``.
    """
    data = overrides.data or entry.data
    if data is None or data == SAMPLE:
        return data
    first = Path.cwd() if overrides.data else folder
    found = locate(data, (first, benchmark.folder, Path.cwd()), path_or_glob_exists)
    return str(found) if path_or_glob_exists(found) or looks_local(data) else data


def path_or_glob_exists(path: Path) -> bool:
    """Whether a file or folder is there, or a glob matches at least one."""
    try:
        if path.exists():
            return True
        if not any(character in str(path) for character in "*?["):
            return False
        return next(iter(Path(path.anchor).glob(str(path.relative_to(path.anchor)))), None) is not None
    except (OSError, ValueError, NotImplementedError):
        return False


def looks_local(data: str) -> bool:
    """Whether a data name can only be a path: a hub name has no such ending or beginning."""
    return (
        data.startswith(("/", "./", "../", "~"))
        or data.lower().endswith(_LOCAL_SUFFIXES)
        or any(character in data for character in "*?[\\")
    )
