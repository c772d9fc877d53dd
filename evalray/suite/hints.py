"""Where an unknown key of a suite was meant to stand: under ``engine_args``, in another section, or misspelt.

The nearest key of its own section is looked up where the file is validated; here it gives way to one that is nearer.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

from evalray.settings import RunDefaults
from evalray.suite.models import (
    BenchmarkEntry,
    Cluster,
    Judge,
    Meta,
    ModelEntry,
    RunSection,
    Telemetry,
    Tracking,
)

_SECTIONS: dict[str, tuple[str, Any]] = {
    "meta": ("[meta]", Meta),
    "defaults": ("[defaults]", RunDefaults),
    "judge": ("[judge]", Judge),
    "run": ("[run]", RunSection),
    "telemetry": ("[telemetry]", Telemetry),
    "models": ("[[models]]", ModelEntry),
    "benchmarks": ("[[benchmarks]]", BenchmarkEntry),
    "cluster": ("[cluster]", Cluster),
    "tracking": ("[tracking]", Tracking),
}
_ENGINES_ARE_IN = ("models", "judge")
#: How like a name must be to be meant, of 1; what stands in another section must have the very name.
_LIKE = 0.8


def misplaced_hint(key: str) -> str | None:
    """What was meant by the unknown ``key`` (``models[0].quantisation``), where it is no key of its own section."""
    section, _, name = key.rpartition(".")
    section = section.partition("[")[0].partition(".")[0]
    own = _SECTIONS[section][1].model_fields if section in _SECTIONS else _SECTIONS
    likeness = max((_likeness(name, known) for known in own), default=0.0)
    if section in _ENGINES_ARE_IN:
        near = max(_engine_arguments(), key=lambda known: (_likeness(name, known), known))
        if _likeness(name, near) >= max(_LIKE, likeness):
            return f"did you mean engine_args.{near}?"
    elsewhere = list(_sections_with(name))
    if elsewhere and likeness < 1.0:
        return f"it belongs in {' or '.join(elsewhere)}"
    return None


def _likeness(name: str, known: str) -> float:
    return difflib.SequenceMatcher(None, _fold(name), _fold(known)).ratio()


def _fold(name: str) -> str:
    return name.lower().replace("-", "_")


def _sections_with(name: str) -> Iterator[str]:
    return (written for written, model in _SECTIONS.values() if _fold(name) in model.model_fields)


def _engine_arguments() -> set[str]:
    from evalray.engines import ENGINES, engine_class

    return {name for engine in ENGINES for name in engine_class(engine).argument_names}
