"""What can be named in a suite right now: engines, scorers and benchmarks that are there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from evalray.benchmarks import BenchmarkListing, list_benchmarks
from evalray.errors import ConfigError, Problem
from evalray.suite import openjarvis

#: Known even where a registry leaves it out, as names a user may mean.
_ALWAYS_KNOWN_ENGINES = frozenset({"openai-compatible", "llama-server"})

_ENGINE_ALIASES = {
    "openai-compat": "openai-compatible",
    "openai-api": "openai-compatible",
    "llama-cpp": "llamacpp",
    "llama.cpp": "llamacpp",
    "lm-studio": "lmstudio",
}


@dataclass(frozen=True, slots=True)
class Registry:
    """Names of engines and scorers, and the benchmark listings by name."""

    engines: frozenset[str]
    scorers: frozenset[str]
    benchmarks: dict[str, BenchmarkListing] = field(default_factory=dict)
    build_scorer: Callable[[str, dict[str, Any]], object] | None = None
    """Builds a scorer or raises :class:`ConfigError`; ``None`` leaves arguments unchecked."""

    @classmethod
    def installed(cls) -> Registry:
        """What this installation and this working directory have.  Imports no engine's SDK."""
        from evalray.engines import ENGINES
        from evalray.scorers import SCORERS, build_scorer

        listings = {listing.name: listing for listing in list_benchmarks()}
        return cls(frozenset(ENGINES), frozenset(SCORERS), listings, build_scorer)

    @property
    def known_engines(self) -> frozenset[str]:
        return self.engines | openjarvis.ENGINES | _ALWAYS_KNOWN_ENGINES

    @property
    def known_benchmarks(self) -> frozenset[str]:
        return openjarvis.BENCHMARKS | self.benchmarks.keys()

    def engine_name(self, written: str) -> str | None:
        """The engine a user means by what they wrote, ``module:Class`` for one of their own; ``None`` if
        nobody knows it."""
        if is_own(written):
            return written
        by_fold = {_fold(name): name for name in sorted(self.known_engines)}
        folded = _fold(written)
        return by_fold.get(folded) or _ENGINE_ALIASES.get(folded)

    def has_scorer(self, name: str) -> bool:
        """A registered scorer, or one of the user's own as ``module:Class``."""
        return name in self.scorers or ":" in name

    def scorer_problems(self, name: str, args: dict[str, Any]) -> list[Problem]:
        """What is wrong with a scorer's arguments; nothing where the scorer is not there at all."""
        if self.build_scorer is None or not self.has_scorer(name):
            return []
        try:
            self.build_scorer(name, args)
        except ConfigError as error:
            return error.problems
        return []


def is_own(name: str) -> bool:
    """Whether an engine's or scorer's name is a class of the user's own, as ``module:Class``."""
    module, colon, attribute = name.partition(":")
    return bool(colon) and attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))


def _fold(name: str) -> str:
    return name.strip().lower().replace("_", "-")
