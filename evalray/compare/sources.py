"""What a path given to ``compare`` means: a run, or a sweep of several.

A run is its directory, its ``.jsonl``, ``.parquet`` or ``.summary.json``; a results file without
a run directory is taken too, but then nothing says how it was prompted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from evalray.errors import ConfigError, EvalRayError, Problem, StoreError
from evalray.store import RunEntry, iter_results, read_run, scan_runs, why_no_run

_SUFFIXES = (".summary.json", ".jsonl", ".parquet")


@dataclass(slots=True, frozen=True)
class RunSource:
    """One run to compare: where its rows are and what is known of how they came about."""

    path: Path
    """What the user named, or the run directory within the sweep they named."""
    rows: Path
    benchmark: str
    model: str
    entry: RunEntry | None = None
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def is_imported(self) -> bool:
        return self.entry is not None and "imported" in self.entry.manifest.info

    @property
    def has_positional_ids(self) -> bool:
        """Record ids are places in a shuffled order, which another seed gives to other questions."""
        if self.entry is None:
            return False
        imported = self.entry.manifest.info.get("imported")
        return isinstance(imported, dict) and bool(imported.get("positional_ids"))


def find_runs(path: Path) -> list[RunSource]:
    """The runs at ``path``: one for a run, all for a sweep directory.

    Raises :class:`ConfigError` where there is nothing to compare.
    """
    if not path.exists():
        raise _problem(path, "no such file or directory")
    if not path.is_dir():
        return [_run_of_file(path)]
    if (path / "run.json").is_file():
        return [_from_entry(read_run(path.absolute()), path)]
    entries, damaged = scan_runs(path)
    if damaged:
        raise StoreError("; ".join(damaged.values()))
    runs = [_from_entry(entry, entry.directory) for entry in entries]
    if not runs:
        raise _problem(path, why_no_run(path), "`evalray import` makes runs of OpenJarvis's files")
    return runs


def _run_of_file(path: Path) -> RunSource:
    for suffix in _SUFFIXES:
        stem = path.name.removesuffix(suffix)
        if stem == path.name:
            continue
        directory = path.absolute().parent / stem
        if (directory / "run.json").is_file():
            return _from_entry(read_run(directory), path)
        return _bare_file(path, stem)
    raise _problem(
        path, "not a results file", f"give a run, a sweep, or a file ending in {', '.join(_SUFFIXES)}"
    )


def _bare_file(path: Path, stem: str) -> RunSource:
    candidates = [path] if not path.name.endswith(".summary.json") else []
    candidates += [path.with_name(stem + suffix) for suffix in (".parquet", ".jsonl")]
    rows = next((candidate for candidate in candidates if candidate.is_file()), None)
    if rows is None:
        raise _problem(
            path, f"no rows beside it ({stem}.parquet or {stem}.jsonl)", "a summary has no samples"
        )
    try:
        first = next(islice(iter_results(rows), 1), None)
    except EvalRayError as error:
        raise _problem(rows, "not a results file", str(error)) from error
    if first is None:
        raise _problem(rows, "no rows to compare")
    summary = _read_summary(path.with_name(stem + ".summary.json"))
    return RunSource(path, rows, str(first.benchmark), str(first.model), summary=summary)


def _from_entry(entry: RunEntry, path: Path) -> RunSource:
    rows = next((p for p in (entry.parquet_path, entry.results_path) if p.is_file()), None)
    if rows is None:
        raise _problem(
            entry.directory, "has no results yet", f"run `evalray summarize {entry.directory}` first"
        )
    config = entry.config
    summary = _read_summary(entry.summary_path)
    return RunSource(path, rows, config.benchmark, config.model, entry, summary)


def _read_summary(path: Path) -> dict[str, Any]:
    """The summary's own fields; a comparison does without where it is missing or damaged."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _problem(path: Path, message: str, hint: str = "") -> ConfigError:
    return ConfigError([Problem(str(path), "", message, hint)])


@dataclass(slots=True)
class Matching:
    """Which run is compared with which, and what has no partner."""

    pairs: list[tuple[RunSource, RunSource]] = field(default_factory=list)
    unmatched: list[str] = field(default_factory=list)


def match_runs(baseline: list[RunSource], candidate: list[RunSource]) -> Matching:
    """Pair two sides: one run with one run as they are, else by benchmark and model, then by benchmark alone.

    The last only where each side has one run of that benchmark left, so that no partner is guessed.
    """
    if len(baseline) == len(candidate) == 1:
        return Matching([(baseline[0], candidate[0])])
    found, left_a, left_b = Matching(), list(baseline), list(candidate)
    for a in baseline:
        same = [b for b in left_b if (b.benchmark, b.model) == (a.benchmark, a.model)]
        if len(same) == 1:
            _pair(found, a, same[0], left_a, left_b)
    for a in list(left_a):
        rest_a = [run for run in left_a if run.benchmark == a.benchmark]
        rest_b = [run for run in left_b if run.benchmark == a.benchmark]
        if len(rest_a) == len(rest_b) == 1:
            _pair(found, a, rest_b[0], left_a, left_b)
    found.unmatched = [f"{run.benchmark} · {run.model} ({run.path})" for run in (*left_a, *left_b)]
    return found


def _pair(
    found: Matching, a: RunSource, b: RunSource, left_a: list[RunSource], left_b: list[RunSource]
) -> None:
    found.pairs.append((a, b))
    left_a.remove(a)
    left_b.remove(b)
