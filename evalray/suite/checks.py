"""Looking up what a suite names, and what can only be judged across layers.

Works on the raw tables, so that these mistakes are found together with wrong types and unknown
keys, not after they have been corrected.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evalray.definition import Benchmark
from evalray.errors import Problem
from evalray.settings import BUILT_IN
from evalray.suite import openjarvis
from evalray.suite.names import folder_name_problem
from evalray.suite.registry import Registry
from evalray.validation import nearest_hint, shown


def check_names(table: dict[str, Any], source: str, registry: Registry) -> Iterator[Problem]:
    """Problems with names of engines, benchmarks, backends, scorers and with the suite's own name."""
    name = _section(table, "meta").get("name")
    well_formed = isinstance(name, str) and name.strip() and name.isprintable()
    if well_formed and (reason := folder_name_problem(str(name))) is not None:
        yield Problem(source, "meta.name", f"{name!r} {reason}: it names the folder of the results")
    yield from _check_engine(_section(table, "judge"), "judge", source, registry)
    for index, entry in _entries(table, "models"):
        yield from _check_engine(entry, f"models[{index}]", source, registry)
    defaults = _section(table, "defaults")
    for index, entry in _entries(table, "benchmarks"):
        yield from _check_benchmark(entry, defaults, f"benchmarks[{index}]", source, registry)


def _section(table: dict[str, Any], name: str) -> dict[str, Any]:
    section = table.get(name)
    return section if isinstance(section, dict) else {}


def _entries(table: dict[str, Any], name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    entries = table.get(name)
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, dict):
            yield index, entry


def _check_engine(entry: dict[str, Any], where: str, source: str, registry: Registry) -> Iterator[Problem]:
    engine = entry.get("engine")
    if isinstance(engine, str) and registry.engine_name(engine) is None:
        hint = nearest_hint(engine, registry.known_engines)
        yield Problem(source, f"{where}.engine", f"unknown engine {shown(engine)}", hint)


def _check_benchmark(
    entry: dict[str, Any], defaults: dict[str, Any], where: str, source: str, registry: Registry
) -> Iterator[Problem]:
    name, backend, scorer = entry.get("name"), entry.get("backend"), entry.get("scorer")
    listing = registry.benchmarks.get(name) if isinstance(name, str) else None
    if listing is not None:
        yield from listing.problems
    elif isinstance(name, str) and name.strip() and name not in openjarvis.BENCHMARKS:
        hint = nearest_hint(name, registry.known_benchmarks)
        yield Problem(source, f"{where}.name", f"unknown benchmark {shown(name)}", hint)
    if isinstance(backend, str) and backend not in openjarvis.BACKENDS:
        hint = nearest_hint(backend, openjarvis.BACKENDS)
        yield Problem(source, f"{where}.backend", f"unknown backend {shown(backend)}", hint)
    if isinstance(scorer, str) and not registry.has_scorer(scorer):
        hint = nearest_hint(scorer, registry.scorers)
        yield Problem(source, f"{where}.scorer", f"unknown scorer {shown(scorer)}", hint)
    yield from check_scorer(entry, where, source, registry, listing.benchmark if listing else None)
    yield from _check_layers(entry, defaults, where, source, listing.benchmark if listing else None)


def check_scorer(
    entry: dict[str, Any], where: str, source: str, registry: Registry, benchmark: Benchmark | None
) -> Iterator[Problem]:
    """What is wrong with the scorer or its arguments, named where they stand: in the suite or the benchmark."""
    scorer, args = entry.get("scorer"), entry.get("scorer_args", {})
    if benchmark is None or not isinstance(scorer, str | None) or not isinstance(args, dict):
        return
    effective = scorer or benchmark.scorer
    own = benchmark.scorer_args if effective == benchmark.scorer else {}
    definition = str(benchmark.folder / "benchmark.toml")
    if scorer is None and not registry.has_scorer(effective):
        hint = nearest_hint(effective, registry.scorers)
        yield Problem(definition, "scorer.name", f"unknown scorer {shown(effective)}", hint)
    for problem in registry.scorer_problems(effective, own | args):
        if problem.key in args:
            at = source, f"{where}.scorer_args.{problem.key}"
        elif problem.key in own:
            at = definition, f"scorer.{problem.key}"
        elif problem.key == "scorer_args" and args:
            at = source, f"{where}.scorer_args"
        else:
            at = (definition, "scorer.name") if scorer is None else (source, f"{where}.scorer")
        yield Problem(*at, f"scorer {effective}: {problem.message}", problem.hint)


def _check_layers(
    entry: dict[str, Any], defaults: dict[str, Any], where: str, source: str, benchmark: Benchmark | None
) -> Iterator[Problem]:
    own = benchmark.defaults if benchmark else {}

    def effective(key: str) -> Any:
        return next((layer[key] for layer in (entry, defaults, own) if key in layer), BUILT_IN[key])

    epochs, pass_k, num_fewshot = effective("epochs"), effective("pass_k"), effective("num_fewshot")
    ks = pass_k if isinstance(pass_k, list) else [pass_k]
    too_large = [k for k in ks if isinstance(k, int) and isinstance(epochs, int) and k > epochs >= 1]
    if too_large:
        hint = f"set epochs = {max(too_large)} or more"
        yield Problem(source, f"{where}.pass_k", f"{max(too_large)} is more than epochs = {epochs}", hint)
    if benchmark and benchmark.provider is None and isinstance(num_fewshot, int):
        examples = len(benchmark.fewshot)
        if num_fewshot > examples:
            message = f"{num_fewshot} is more than the {examples} worked examples of {benchmark.name}"
            hint = f"at most {examples}"
            if not examples:
                message = f"{num_fewshot}, but {benchmark.name} has no worked examples"
                hint = f"put rows into {benchmark.folder / 'fewshot.jsonl'}"
            yield Problem(source, f"{where}.num_fewshot", message, hint)
