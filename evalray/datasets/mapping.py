"""From a row to a record: field mapping, stable ids, and the bytes a digest is taken over.

A row becomes a record, raises :class:`~evalray.prompts.RowError` with the reason, or is left out by
the benchmark's filter (:class:`~evalray.prompts.RowFiltered`); the provider adds the place and counts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from evalray.definition import Benchmark
from evalray.prompts import (
    LETTERS,
    Columns,
    PromptTemplate,
    Row,
    RowError,
    absence,
    as_text,
    benchmark_field,
    is_missing,
)
from evalray.types import EvalRecord

#: The column with the place of a question's file on this machine.
ATTACHMENT_PATH = "attachment_path"

_encode = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Checked:
    """A row of which a record can be made."""

    record_id: str
    """Duplicates not yet told apart."""
    canonical: bytes
    """The columns in use as bytes that do not depend on the file format: for the data's digest."""


class RowMapper:
    """A benchmark's field mapping, compiled once; maps any number of rows."""

    def __init__(self, benchmark: Benchmark) -> None:
        self._category = benchmark.category
        self._columns = Columns(benchmark)
        self._prompt = PromptTemplate(benchmark, self._columns)
        self._shuffles = benchmark.shuffle_choices
        self._id = benchmark_field(benchmark, "id")
        self._reference = benchmark_field(benchmark, "reference")
        self._subject = benchmark_field(benchmark, "subject")
        self._metadata_columns = benchmark.metadata_columns
        reference_columns = self._reference.columns if self._reference else frozenset[str]()
        # columns, not the mapped text: a mended reference expression re-scores the same records
        self._content_columns = self._portable(self._prompt.columns | reference_columns)
        used = set(self._content_columns) | set(self._metadata_columns)
        used |= self._id.columns if self._id else set()
        used |= self._subject.columns if self._subject else set()
        self._digested = self._portable(used)
        used |= self._prompt.columns | reference_columns
        self.columns: list[str] = sorted(self._columns.sources(used))
        """Every column of the data that a record is made of."""

    def _portable(self, names: Iterable[str]) -> list[str]:
        """Without what differs from machine to machine although the data is the same."""
        return sorted(name for name in names if self._columns.behind({name}) != {ATTACHMENT_PATH})

    def check(self, row: Row) -> Checked:
        """What the index keeps of a row; raises where no record can be made of it."""
        row = self._columns.derive(row)
        record_id = self._record_id(row)
        if self._prompt.plain:
            self._prompt.require_columns(row)
            self._reference_text(row, [])
        else:
            _, _, order = self._render(row, record_id)
            self._reference_text(row, order)
        if self._subject is not None:
            self._subject_text(row)
        return Checked(record_id, _canonical(row, self._digested))

    def record(self, row: Row, suffix: str = "") -> EvalRecord:
        """The record; ``suffix`` tells a repeated id from the first."""
        row = self._columns.derive(row)
        record_id = self._record_id(row)
        problem, options, order = self._render(row, record_id)
        metadata: dict[str, Any] = {c: row[c] for c in self._metadata_columns if c in row}
        if options:
            metadata["options"] = [option["text"] for option in options]
        return EvalRecord(
            record_id=record_id + suffix,
            problem=problem,
            reference=self._reference_text(row, order),
            category=self._category,
            subject=self._subject_text(row),
            metadata=metadata,
        )

    def record_id(self, row: Row) -> str:
        """The mapped id; a hash of the content where the row has none."""
        return self._record_id(self._columns.derive(row))

    def _record_id(self, row: Row) -> str:
        if self._id is not None:
            try:
                own = self._id.text(row).strip()
            except RowError:
                own = ""
            if own:
                return own
        return hashlib.sha256(_canonical(row, self._content_columns)).hexdigest()[:16]

    def _render(self, row: Row, record_id: str) -> tuple[str, list[dict[str, str]], list[int]]:
        problem, options, order = self._prompt.render(row, record_id if self._shuffles else None)
        if not problem.strip():
            raise RowError("the prompt renders to nothing")
        return problem, options, order

    def _reference_text(self, row: Row, order: list[int]) -> str:
        """``order``: which option of the data each letter stands for; empty without options."""
        if self._reference is None:
            return ""
        text = self._reference.text(row)
        if not text.strip():
            columns = sorted(self._reference.columns)
            nothing = [column for column in columns if is_missing(row.get(column))]
            if nothing:
                raise RowError(absence(row, nothing[0], *self._columns.names_behind(nothing[0])))
            raise RowError(f"no reference: nothing comes of {', '.join(map(repr, columns))}")
        if not order:
            return text
        text = text.strip()
        if len(text) != 1 or text not in LETTERS[: len(order)]:
            last = LETTERS[len(order) - 1]
            hint = "map it with the filter letter or letter_in"
            raise RowError(f"reference {text[:40]!r} is not a letter from A to {last} ({hint})")
        return LETTERS[order.index(LETTERS.index(text))]

    def _subject_text(self, row: Row) -> str:
        return self._subject.text(row) if self._subject is not None else ""


def _canonical(row: Row, columns: Iterable[str]) -> bytes:
    cells = [(column, as_text(row[column])) for column in columns if not is_missing(row.get(column))]
    return _encode(cells).encode() + b"\n"
