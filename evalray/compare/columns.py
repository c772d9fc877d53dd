"""The columns of a results file that a comparison needs, one figure per record.

Epochs are averaged per record, so that a record weighs the same however often it was tried.
Parquet is read column by column and never whole rows; JSON lines are parsed one at a time and
dropped.  Prompts and answers are never held.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from evalray.errors import StoreError

Array = npt.NDArray[np.float64]

#: Row columns that are compared record by record, with what they are called for a reader.
MEASURES: dict[str, str] = {
    "prompt_tokens": "prompt tokens",
    "completion_tokens": "output tokens",
    "reasoning_tokens": "reasoning tokens",
    "latency_seconds": "latency, s",
    "ttft": "time to first token, s",
    "throughput_tok_per_sec": "tokens/s per request",
    "cost_usd": "cost, USD",
    "energy_joules": "energy, J",
}
_NUMBERS = ("is_correct", "score", *MEASURES)
_TEXTS = ("record_id", "outcome", "subject", "reference", "benchmark", "model", "scorer")


@dataclass(slots=True)
class RunColumns:
    """One run, one entry per record, in the order of first appearance.

    ``accuracy`` is the share of a record's scored epochs that are correct, NaN where none was
    scored; ``score`` likewise of the graded score; measures are means over the measured epochs.
    ``references`` are hashes of the gold answers, good within this process; ``None`` where a record has none.
    """

    record_ids: list[str]
    accuracy: Array
    score: Array
    measures: dict[str, Array]
    subjects: list[str | None]
    references: list[int | None]
    rows: int
    epochs: int
    """The most rows of any one record."""
    outcomes: dict[str, int]
    benchmark: str
    model: str
    scorer: str

    @property
    def is_binary(self) -> bool:
        """Each record is right, wrong or not scored: what McNemar's test needs."""
        known = self.accuracy[np.isfinite(self.accuracy)]
        return bool(np.isin(known, (0.0, 1.0)).all())


def read_columns(path: Path) -> RunColumns:
    """Read a ``.parquet`` or ``.jsonl`` results file.  Raises :class:`StoreError` for another file or none."""
    table = _Gathered()
    batches = _parquet_batches(path) if path.suffix == ".parquet" else _jsonl_batches(path)
    for texts, numbers in batches:
        table.add(texts, numbers)
    if not table.codes:
        raise StoreError(f"{path}: no rows to compare")
    return table.finish()


class _Gathered:
    """Columns put together from batches of rows."""

    def __init__(self) -> None:
        self.positions: dict[str, int] = {}
        self.codes: list[npt.NDArray[np.int64]] = []
        self.numbers: dict[str, list[Array]] = {name: [] for name in _NUMBERS}
        self.subjects: list[str | None] = []
        self.references: list[int | None] = []
        self.outcomes: dict[str, int] = {}
        self.first: dict[str, str] = {}

    def add(self, texts: dict[str, list[str | None]], numbers: dict[str, Array]) -> None:
        ids = texts["record_id"]
        codes = np.empty(len(ids), dtype=np.int64)
        for row, record_id in enumerate(ids):
            record_id = record_id or ""
            position = self.positions.get(record_id)
            if position is None:
                position = self.positions[record_id] = len(self.positions)
                self.subjects.append(texts["subject"][row] or None)
                reference = (texts["reference"][row] or "").strip()
                self.references.append(hash(reference) if reference else None)
            codes[row] = position
        self.codes.append(codes)
        for name, values in numbers.items():
            self.numbers[name].append(values)
        for outcome in texts["outcome"]:
            self.outcomes[outcome or ""] = self.outcomes.get(outcome or "", 0) + 1
        if not self.first and ids:
            self.first = {name: texts[name][0] or "" for name in ("benchmark", "model", "scorer")}

    def finish(self) -> RunColumns:
        codes, size = np.concatenate(self.codes), len(self.positions)
        means = {name: _means(codes, np.concatenate(self.numbers[name]), size) for name in _NUMBERS}
        return RunColumns(
            record_ids=list(self.positions),
            accuracy=means["is_correct"],
            score=means["score"],
            measures={name: means[name] for name in MEASURES},
            subjects=self.subjects,
            references=self.references,
            rows=int(codes.size),
            epochs=int(np.bincount(codes).max()),
            outcomes={name: n for name, n in sorted(self.outcomes.items()) if name},
            **self.first,
        )


def _means(codes: npt.NDArray[np.int64], values: Array, size: int) -> Array:
    """Mean of the finite values of each code; NaN where there is none."""
    known = np.isfinite(values)
    counts = np.bincount(codes[known], minlength=size)
    sums = np.bincount(codes[known], weights=values[known], minlength=size)
    result = np.full(size, np.nan)
    np.divide(sums, counts, out=result, where=counts > 0)
    return result


Batch = tuple[dict[str, list[str | None]], dict[str, Array]]


def _parquet_batches(path: Path) -> Iterator[Batch]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise StoreError(f"{path}: not a readable Parquet file ({error})") from error
    with file:
        there = set(file.schema_arrow.names)
        if missing := [name for name in ("record_id", "is_correct") if name not in there]:
            raise StoreError(f"{path}: not a results file (no column {', '.join(missing)})")
        wanted = [name for name in (*_TEXTS, *_NUMBERS) if name in there]
        for batch in file.iter_batches(batch_size=8192, columns=wanted, use_threads=False):
            size = batch.num_rows
            texts: dict[str, list[str | None]] = {
                name: batch.column(name).cast(pa.string()).to_pylist() if name in there else [None] * size
                for name in _TEXTS
            }
            numbers: dict[str, Array] = {
                name: batch.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False)
                if name in there
                else np.full(size, np.nan)
                for name in _NUMBERS
            }
            yield texts, numbers


def _jsonl_batches(path: Path) -> Iterator[Batch]:
    """Straight from JSON to columns: building whole rows would double the time."""
    rows: list[dict[str, Any]] = []
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                rows.append(_parse(line, f"{path}:{number}"))
                if len(rows) >= 512:
                    yield _batch(rows)
                    rows.clear()
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}; is it readable?") from error
    if rows:
        yield _batch(rows)


def _parse(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict) or "record_id" not in row:
        raise StoreError(
            f"{where}: not a result row; was the file cut short? `evalray import` leaves such rows out"
        )
    return row


def _batch(rows: list[dict[str, Any]]) -> Batch:
    texts = {name: [_text(row.get(name)) for row in rows] for name in _TEXTS}
    numbers = {name: np.array([_number(row.get(name)) for row in rows]) for name in _NUMBERS}
    # A verdict is true, false or null; any other number would count as several right answers.
    numbers["is_correct"][~np.isin(numbers["is_correct"], (0.0, 1.0))] = np.nan
    return texts, numbers


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _number(value: Any) -> float:
    if not isinstance(value, int | float):
        return float("nan")
    try:
        return float(value)
    except OverflowError:  # an integer of JSON has no largest value
        return float("nan")
