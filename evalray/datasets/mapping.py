"""From a row to a record: field mapping, stable ids, and the bytes a digest is taken over.

A row either becomes a record or raises :class:`~evalray.prompts.RowError` with the reason; the
provider adds the place and counts it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from evalray.benchmarks import Benchmark
from evalray.prompts import LETTERS, PromptTemplate, Row, RowError, as_text, benchmark_field, is_missing
from evalray.types import EvalRecord

_encode = json.JSONEncoder(separators=(",", ":")).encode


class RowMapper:
    """A benchmark's field mapping, compiled once; maps any number of rows."""

    def __init__(self, benchmark: Benchmark) -> None:
        self._category = benchmark.category
        self._prompt = PromptTemplate(benchmark)
        self._id = benchmark_field(benchmark, "id")
        self._reference = benchmark_field(benchmark, "reference")
        self._subject = benchmark_field(benchmark, "subject")
        self._metadata_columns = benchmark.metadata_columns
        reference_columns = self._reference.columns if self._reference else frozenset[str]()
        # columns, not the mapped text: a mended reference expression re-scores the same records
        self._content_columns = sorted(self._prompt.columns | reference_columns)
        used = set(self._content_columns) | set(self._metadata_columns)
        used |= self._id.columns if self._id else set()
        used |= self._subject.columns if self._subject else set()
        self.columns: list[str] = sorted(used)
        """Every column that a record is made of."""

    def check(self, row: Row) -> str:
        """The row's own id, duplicates not yet told apart; raises where no record can be made of it."""
        if self._prompt.plain:
            self._prompt.require_columns(row)
            self._reference_text(row, 0)
        else:
            _, options = self._render(row)
            self._reference_text(row, len(options))
        if self._subject is not None:
            self._subject_text(row)
        return self.record_id(row)

    def record(self, row: Row, suffix: str = "") -> EvalRecord:
        """The record; ``suffix`` tells a repeated id from the first."""
        problem, options = self._render(row)
        metadata: dict[str, Any] = {c: row[c] for c in self._metadata_columns if c in row}
        if options:
            metadata["options"] = [option["text"] for option in options]
        return EvalRecord(
            record_id=self.record_id(row) + suffix,
            problem=problem,
            reference=self._reference_text(row, len(options)),
            category=self._category,
            subject=self._subject_text(row),
            metadata=metadata,
        )

    def record_id(self, row: Row) -> str:
        """The mapped id; a hash of the content where the row has none."""
        if self._id is not None:
            try:
                own = self._id.text(row).strip()
            except RowError:
                own = ""
            if own:
                return own
        return hashlib.sha256(_canonical(row, self._content_columns)).hexdigest()[:16]

    def canonical(self, row: Row) -> bytes:
        """The columns in use as bytes that do not depend on the file format: for the data digest."""
        return _canonical(row, self.columns)

    def _render(self, row: Row) -> tuple[str, list[dict[str, str]]]:
        problem, options = self._prompt.render(row)
        if not problem.strip():
            raise RowError("the prompt renders to nothing")
        return problem, options

    def _reference_text(self, row: Row, option_count: int) -> str:
        if self._reference is None:
            return ""
        text = self._reference.text(row)
        if not text.strip():
            raise RowError(f"no reference: {', '.join(sorted(self._reference.columns))} missing or empty")
        if not option_count:
            return text
        text = text.strip()
        if text not in LETTERS[:option_count] or len(text) != 1:
            last = LETTERS[option_count - 1]
            hint = "map it with the filter letter or letter_in"
            raise RowError(f"reference {text[:40]!r} is not a letter from A to {last} ({hint})")
        return text

    def _subject_text(self, row: Row) -> str:
        return self._subject.text(row) if self._subject is not None else ""


def _canonical(row: Row, columns: Iterable[str]) -> bytes:
    cells = [(column, as_text(row[column])) for column in columns if not is_missing(row.get(column))]
    return _encode(cells).encode() + b"\n"
