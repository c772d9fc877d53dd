"""Find OpenJarvis's result files and read their rows, naming every line that is none.

A file is read twice: once to count its records, which the store has to know beforehand, and once
to hand its rows over; rows are never held.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evalray.errors import ConfigError, Problem, StoreError
from evalray.importing.rows import RowError, RowIdentity, identify
from evalray.wording import bad_rows_left_out, counted

_REPEATS = "row repeats a record id of an earlier row and was"
_REPEAT = "rows repeat a record id of an earlier row and were"

_SUMMARY = ".summary.json"
_NAMED = 5
RunKey = tuple[str, str, str]
"""Benchmark, model, backend."""


@dataclass(slots=True)
class RunScan:
    """The samples of one run within a file."""

    identity: str
    """Tells this run from another of the same benchmark and model: its first row, verdict aside."""
    positions: dict[str, int] = field(default_factory=dict)
    """Record ids in the order of first appearance."""
    epochs: int = 1
    rows: int = 0
    engine: str = ""
    scorer: str = ""
    seen: set[tuple[int, int]] = field(default_factory=set)

    @property
    def has_positional_ids(self) -> bool:
        """All ids end in a bare number, as OpenJarvis makes them of a place in the shuffled order."""
        return all(record_id.rpartition("-")[2].isdigit() for record_id in self.positions)


@dataclass(slots=True)
class FileScan:
    """What a results file holds."""

    path: Path
    runs: dict[RunKey, RunScan] = field(default_factory=dict)
    bad_rows: int = 0
    bad_lines: list[str] = field(default_factory=list)
    """The first few, as ``file:line: reason``."""
    duplicates: int = 0
    ours: bool = False
    """Rows that EvalRay wrote."""
    sha256: str = ""
    summary: dict[str, Any] | None = None
    """The ``.summary.json`` beside it."""
    warnings: list[str] = field(default_factory=list)

    @property
    def warnings_of_rows(self) -> list[str]:
        found = list(self.warnings)
        found += bad_rows_left_out(self.bad_rows, self.bad_lines)
        if self.duplicates:
            found.append(f"{counted(self.duplicates, _REPEATS, _REPEAT)} left out")
        return found


def find_files(path: Path) -> list[Path]:
    """The ``.jsonl`` files meant by a file, a summary or a folder.

    Raises :class:`ConfigError` where there is none.
    """
    if not path.exists():
        raise _problem(path, "no such file or directory")
    if path.is_dir():
        if (path / "run.json").is_file() or (path / "sweep.json").is_file():
            raise _problem(path, "is EvalRay's own run directory", f"`evalray summarize {path}` reads it")
        found = sorted(file for file in path.glob("*.jsonl") if file.is_file())
        if not found:
            raise _problem(path, "holds no .jsonl", "give OpenJarvis's results folder, or one of its files")
        return found
    if path.name.endswith(_SUMMARY):
        rows = path.with_name(path.name.removesuffix(_SUMMARY) + ".jsonl")
        if not rows.is_file():
            raise _problem(path, f"no {rows.name} beside it", "a summary alone has no samples to import")
        return [rows]
    if path.suffix != ".jsonl":
        raise _problem(
            path, "not a .jsonl file", "give OpenJarvis's .jsonl or .summary.json, or their folder"
        )
    return [path]


def _problem(path: Path, message: str, hint: str = "") -> ConfigError:
    return ConfigError([Problem(str(path), "", message, hint)])


def scan(path: Path) -> FileScan:
    """Read a file once.  Raises :class:`ConfigError` where no line of it is a result row."""
    found = FileScan(path)
    digest = hashlib.sha256()
    for number, line in _lines(path):
        digest.update(line)
        try:
            row, identity = _parse(line)
        except RowError as error:
            found.bad_rows += 1
            if len(found.bad_lines) < _NAMED:
                found.bad_lines.append(f"{path.name}:{number}: {error}")
            continue
        _take(found, row, identity)
    found.sha256 = digest.hexdigest()
    if not found.runs:
        first = f": {found.bad_lines[0]}" if found.bad_lines else ", it is empty"
        raise _problem(
            path, f"not one of OpenJarvis's results files{first}", "rows need record_id, benchmark, model"
        )
    _read_summary(found)
    return found


def _take(found: FileScan, row: dict[str, Any], identity: RowIdentity) -> None:
    found.ours = found.ours or "schema_version" in row
    key = (identity.benchmark, identity.model, identity.backend)
    run = found.runs.get(key)
    if run is None:
        first = [identity.record_id, str(row.get("model_answer")), str(row.get("latency_seconds"))]
        run = found.runs[key] = RunScan(json.dumps(first))
        run.engine, run.scorer = str(row.get("engine") or ""), str(row.get("scorer") or "")
    position = run.positions.setdefault(identity.record_id, len(run.positions))
    if (position, identity.epoch) in run.seen:
        found.duplicates += 1
        return
    run.seen.add((position, identity.epoch))
    run.rows += 1
    run.epochs = max(run.epochs, identity.epoch + 1)


def read_rows(path: Path, key: RunKey) -> Iterator[tuple[RowIdentity, dict[str, Any]]]:
    """The good rows of one run, the first of each sample only."""
    seen = set()
    for _, line in _lines(path):
        try:
            row, identity = _parse(line)
        except RowError:
            continue
        sample = (identity.record_id, identity.epoch)
        if (identity.benchmark, identity.model, identity.backend) == key and sample not in seen:
            seen.add(sample)
            yield identity, row


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with path.open("rb") as file:
            if b"\0" in file.read(4096):
                raise _problem(path, "a binary file, not JSON lines", "give OpenJarvis's .jsonl")
            file.seek(0)
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}; is it readable?") from error


def _parse(line: bytes) -> tuple[dict[str, Any], RowIdentity]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        cut = " (the line is cut short)" if not line.endswith(b"\n") else ""
        raise RowError(f"not JSON{cut}") from error
    if not isinstance(row, dict):
        raise RowError("not a JSON object")
    return row, identify(row)


def _read_summary(found: FileScan) -> None:
    """Take in the summary beside the rows; one that does not fit them is said."""
    path = found.path.with_name(found.path.name.removesuffix(".jsonl") + _SUMMARY)
    if not path.is_file():
        return
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        value = None
    if not isinstance(value, dict) or "benchmark" not in value:
        found.warnings.append(f"{path.name}: not a readable summary; the rows were imported without it")
        return
    found.summary = value
    rows = sum(run.rows for run in found.runs.values())
    total = value.get("total_samples")
    if total != rows:
        found.warnings.append(
            f"{path.name} counts {total} samples, {found.path.name} holds {counted(rows, 'row')}"
        )
