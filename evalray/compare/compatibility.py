"""Whether two runs answered the same questions, put the same way, graded by the same rules.

A known difference is a conflict and stops the comparison unless it is wanted; what is unknown is a
warning.  Other sampling, engines and models are what one compares, and are only named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from evalray.compare.sources import RunSource

_SHOWN = 12
#: Settings that may differ, and that a reader has to know of when they do.
_SETTINGS = (
    "temperature",
    "max_tokens",
    "top_p",
    "top_k",
    "stop",
    "sampling_seed",
    "judge_model",
    "backend",
    "agent_name",
    "tools",
)


@dataclass(slots=True)
class Compatibility:
    """``conflicts`` forbid a comparison, ``warnings`` qualify it, ``settings`` maps what differs to both values."""

    conflicts: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    settings: dict[str, tuple[Any, Any]] = field(default_factory=dict)


def check(a: RunSource, b: RunSource) -> Compatibility:
    """What is known of both runs before any row is read."""
    found = Compatibility()
    if a.benchmark != b.benchmark:
        found.conflicts.append(f"different benchmarks: {a.benchmark} and {b.benchmark}")
    unknown = []
    for label, fact in _FACTS:
        mine, other = fact(a), fact(b)
        if mine is None or other is None:
            unknown.append(label)
        elif mine != other:
            found.conflicts.append(f"different {label}: {_short(mine)} and {_short(other)}")
    if unknown and a.rows != b.rows:
        listed = " and ".join(filter(None, [", ".join(unknown[:-1]), unknown[-1]]))
        found.warnings.append(
            f"{listed}: not known of both runs, so it was not checked that they are the same"
        )
    if a.entry is not None and b.entry is not None:
        for name in () if a.is_imported or b.is_imported else _SETTINGS:
            values = getattr(a.entry.config, name), getattr(b.entry.config, name)
            if values[0] != values[1]:
                found.settings[name] = values
    if a.has_positional_ids or b.has_positional_ids:
        found.warnings.append(
            "record ids are positions in a shuffled order: the same id is the same question only "
            "where both runs used the same seed and number of samples"
        )
    return found


def _info(key: str) -> Callable[[RunSource], str | None]:
    def fact(run: RunSource) -> str | None:
        value = None if run.entry is None else run.entry.manifest.info.get(key)
        return str(value) if value else None

    return fact


def _scorer(run: RunSource) -> str | None:
    """Name and fingerprint; not known of imported runs, whose scorers were not ours."""
    if run.entry is None or run.is_imported:
        return None
    manifest = run.entry.manifest
    return f"{manifest.scorer} ({manifest.scorer_fingerprint})"


def _config(name: str) -> Callable[[RunSource], str | None]:
    def fact(run: RunSource) -> str | None:
        if run.entry is None or run.is_imported:
            return None
        return str(getattr(run.entry.config, name) or "none")

    return fact


_FACTS: tuple[tuple[str, Callable[[RunSource], str | None]], ...] = (
    ("prompt", _info("prompt_hash")),
    ("system prompt", _config("system_prompt")),
    ("number of worked examples", _config("num_fewshot")),
    ("data", _info("data_digest")),
    ("scorer", _scorer),
)


def _short(text: str) -> str:
    return text if " " in text or len(text) <= _SHOWN else text[:_SHOWN] + "…"


def reference_conflict(pairs: Iterator[tuple[int | None, int | None]]) -> str | None:
    """A conflict where the same record id has another gold answer in the other run: another question.

    Takes the references' hashes; records whose reference one side does not have are not counted.
    """
    known = different = 0
    for mine, other in pairs:
        if mine is not None and other is not None:
            known += 1
            different += mine != other
    if not different:
        return None
    return (
        f"{different:,} of {known:,} common records have another reference answer: "
        "the same record id stands for another question, or the data changed"
    )
