"""What a suite can name: benchmarks, engines, scorers and models, as rows of text for a list.

Imports no engine's SDK, reads no network.
"""

from __future__ import annotations

import importlib
import inspect
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from evalray.errors import ConfigError, Problem

if TYPE_CHECKING:
    from evalray.benchmarks import BenchmarkListing
    from evalray.suite import Registry


def known_benchmarks() -> list[tuple[str, str, str, str, str]]:
    """Name, category, scorer, folder and title of each benchmark on the search path.

    A broken definition is listed with all that is wrong with it in place of its title; a folder that hides
    another of the same name says whose.
    """
    from evalray.benchmarks import search_path
    from evalray.suite import Registry

    origins = {folder: origin for origin, folder in search_path()}
    registry = Registry.installed()
    rows = []
    for listing in registry.benchmarks.values():
        benchmark = listing.benchmark
        where = _where(listing, origins)
        found = _problems(listing, registry)
        if benchmark is None or found:
            broken = "; ".join(str(replace(problem, source=Path(problem.source).name)) for problem in found)
            rows.append((listing.name, "", "", where, f"broken: {broken}" if broken else "broken"))
        else:
            rows.append((listing.name, benchmark.category, benchmark.scorer, where, benchmark.title))
    return rows


def _problems(listing: BenchmarkListing, registry: Registry) -> list[Problem]:
    """What is wrong with a benchmark's definition, its scorer and the arguments of that included."""
    from evalray.suite.checks import check_scorer

    return [*listing.problems, *check_scorer({}, "", "", registry, listing.benchmark)]


def _where(listing: BenchmarkListing, origins: dict[Path, str]) -> str:
    """Where on the search path a benchmark is, and whose folders of its name it hides."""
    hidden = dict.fromkeys(origins.get(folder.parent, str(folder)) for folder in listing.shadows)
    if not hidden:
        return listing.origin
    return f"{listing.origin}, hides {' and '.join(hidden)}"


def runnable_benchmarks() -> list[str]:
    """The names of the benchmarks on the search path whose definition is sound."""
    from evalray.suite import Registry

    registry = Registry.installed()
    return [
        listing.name
        for listing in registry.benchmarks.values()
        if listing.benchmark is not None and not _problems(listing, registry)
    ]


_BACKENDS = {
    "jarvis-direct": "one request per sample, straight to the model's engine",
    "jarvis-agent": "an agent with tools around the model",
}


def known_backends() -> list[tuple[str, str]]:
    """Name of each backend a suite may name, and what it is."""
    from evalray.suite import openjarvis

    missing = "OpenJarvis's; not available in this version"
    rows = []
    for name in sorted(openjarvis.BACKENDS, key=lambda name: (name != openjarvis.DIRECT_BACKEND, name)):
        here = name == openjarvis.DIRECT_BACKEND
        what = _BACKENDS.get(name, "")
        rows.append((name, what if here else "; ".join(filter(None, (what, missing)))))
    return rows


def known_engines() -> list[tuple[str, str, str]]:
    """Name, requests in flight per replica, and what it is, of each engine."""
    from evalray.engines import ENGINES, engine_class

    return [
        (name, str(engine_class(name).default_concurrency), _description(target))
        for name, target in sorted(ENGINES.items())
    ]


def known_scorers() -> list[tuple[str, str, str]]:
    """Name of each scorer, the arguments it takes, and what it is."""
    from evalray.scorers import SCORERS, scorer_arguments

    modules = Counter(target.partition(":")[0] for target in SCORERS.values())
    return [
        (
            name,
            ", ".join(scorer_arguments(name)) or "-",
            _description(target, of_class=modules[target.partition(":")[0]] > 1),
        )
        for name, target in sorted(SCORERS.items())
    ]


def known_models(configs: Path = Path("configs")) -> list[tuple[str, str, str, str]]:
    """Name, engine, file or address, and where it is named: suites in ``configs``, GGUF files in packages.

    Suites that cannot be read are left out; ``evalray plan -c`` says what is wrong with them.
    """
    from evalray.engines.model_path import packaged_models
    from evalray.suite import load_suite

    rows = []
    for path in sorted([*configs.glob("*.toml"), *configs.glob("*.json")]):
        try:
            models = load_suite(path).models
        except ConfigError:
            continue
        rows += [
            (model.name, model.engine or "default", model.path or model.base_url or "", str(path))
            for model in models
        ]
    rows += [
        (name, "llamacpp", path, f"package {path.removeprefix('package:').partition('/')[0]}")
        for name, path in packaged_models().items()
    ]
    return rows


def _description(target: str, *, of_class: bool = False) -> str:
    """First line of the documentation of the module in ``module:Class``, or of the class."""
    name, _, attribute = target.partition(":")
    module = importlib.import_module(name)
    described = getattr(module, attribute) if of_class else module
    return (inspect.getdoc(described) or "").partition("\n")[0].replace("``", "")
