"""Read what a finished run left: its rows, one by one, and its summary.

Takes OpenJarvis's files as well: fields they lack are not measured, fields we do not know are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from evalray.errors import StoreError
from evalray.store.journal import parse, read_lines
from evalray.store.jsonlines import read_json, store_errors
from evalray.store.layout import RunFiles
from evalray.store.lines import read_generation
from evalray.store.rows import COLUMNS, KINDS
from evalray.types import EvalResult, Generation, MetricStats, RunSummary

_MAPPINGS = tuple(name for name, kind in KINDS.items() if kind is dict)
_STATS = tuple(f.name for f in fields(MetricStats))


def iter_results(path: Path) -> Iterator[EvalResult]:
    """Rows of a ``.jsonl`` or ``.parquet`` results file, in the order they stand.

    Raises :class:`StoreError` for a file that cannot be read or is something else.
    """
    path = Path(path)
    yield from _from_parquet(path) if path.suffix == ".parquet" else _from_jsonl(path)


def _from_jsonl(path: Path) -> Iterator[EvalResult]:
    with store_errors(path), path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            value = parse(line)
            if value is None or "record_id" not in value:
                raise StoreError(f"{path}:{number}: not a result row; is this a results file?")
            yield _row(value)


def _from_parquet(path: Path) -> Iterator[EvalResult]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise StoreError(f"{path}: not a readable Parquet file ({error})") from error
    with file:
        for batch in file.iter_batches(batch_size=512):
            for value in batch.to_pylist():
                for name in _MAPPINGS:
                    text = value.pop(name, None)
                    if text is not None:
                        value[name] = parse(text.encode()) or {}
                yield _row(value)


def _row(value: dict[str, Any]) -> EvalResult:
    return EvalResult(**{name: value[name] for name in COLUMNS if name in value})


def iter_generations(run_directory: Path) -> Iterator[tuple[int, int, Generation]]:
    """Position, epoch and generation of every line of a run's journal, superseded ones included.

    Raises :class:`StoreError` where it cannot be read; damaged lines are passed over.
    """
    for _, line in read_lines(RunFiles(Path(run_directory)).generations):
        value = parse(line) or {}
        position, epoch = value.get("position"), value.get("epoch")
        if isinstance(position, int) and isinstance(epoch, int):
            yield position, epoch, read_generation(value)


def read_summary(path: Path) -> RunSummary:
    """A ``.summary.json``.  Raises :class:`StoreError` for a missing or foreign file."""
    value = read_json(Path(path))
    known = {f.name: f for f in fields(RunSummary)}
    missing = [
        n
        for n, f in known.items()
        if f.default is MISSING and f.default_factory is MISSING and n not in value
    ]
    if missing:
        raise StoreError(f"{path}: not a run summary (no {', '.join(missing)})")
    given = {name: item for name, item in value.items() if name in known}
    for name, item in given.items():
        if name.endswith("_stats"):
            given[name] = _stats(
                item, value["scored_samples" if name == "accuracy_stats" else "total_samples"]
            )
    if given.get("accuracy_ci95") is not None:
        low, high = given["accuracy_ci95"]
        given["accuracy_ci95"] = (low, high)
    return RunSummary(**given)


def _stats(value: Any, at_most: int) -> MetricStats | None:
    """OpenJarvis writes no ``n``: there it is the most that it can be, the number of samples."""
    if not isinstance(value, dict):
        return None
    given = {"n": at_most, **{name: item for name, item in value.items() if name in _STATS}}
    return MetricStats(**given) if len(given) == len(_STATS) else None
