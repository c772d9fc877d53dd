"""Readers for local text files: JSON lines, JSON arrays, CSV and TSV, by byte offset.

A reader makes one pass over a file and yields ``(offset, line, row)``, a reason in place of a row
that cannot be read; whatever bytes the file holds, one bad line costs one row.  ``read_at`` finds a
row again from its offset, so that nothing but offsets need be kept.
"""

from __future__ import annotations

import csv
import json
import mmap
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from evalray.datasets.source import ScannedRow
from evalray.errors import DatasetError
from evalray.wording import counted

_BOM = b"\xef\xbb\xbf"
#: Characters; what a quote that is never closed can take up before it is given up.
_LARGEST_CELL = 64 * 2**20


class FileReader(Protocol):
    """One open file of a known format."""

    def scan(self) -> Iterator[ScannedRow]: ...

    def read_at(self, offset: int) -> dict[str, Any]:
        """Raises :class:`ValueError` where no row starts there."""
        ...

    def close(self) -> None: ...


def _parse_object(raw: bytes) -> dict[str, Any] | str:
    try:
        value = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        return f"not UTF-8 (byte {error.start})"
    except json.JSONDecodeError as error:
        return f"not JSON: {error.msg} (column {error.colno})"
    except (ValueError, RecursionError) as error:
        return f"not JSON that can be read: {error}"
    return value if isinstance(value, dict) else f"a JSON {_json_type(value)}, not an object"


def _json_type(value: object) -> str:
    names = {list: "array", str: "string", bool: "boolean", int: "number", float: "number"}
    return names.get(type(value), "null")


def _row_or_raise(row: dict[str, Any] | str) -> dict[str, Any]:
    if isinstance(row, str):
        raise ValueError(row)
    return row


class JsonLinesReader:
    """``.jsonl``, ``.ndjson``: one object a line; blank lines are skipped."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("rb")

    def scan(self) -> Iterator[ScannedRow]:
        offset = 0
        for line, raw in enumerate(self._file, start=1):
            start, offset = offset, offset + len(raw)
            if line == 1 and raw.startswith(_BOM):
                raw, start = raw[len(_BOM) :], len(_BOM)
            if raw.strip():
                yield start, line, _parse_object(raw)

    def read_at(self, offset: int) -> dict[str, Any]:
        self._file.seek(offset)
        return _row_or_raise(_parse_object(self._file.readline()))

    def close(self) -> None:
        self._file.close()


class JsonArrayReader:
    """``.json``: an array of objects, found by their brackets so that the array is never held whole."""

    _TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{},]', re.DOTALL)

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("rb")
        empty = path.stat().st_size == 0
        self._data: mmap.mmap | None = (
            None if empty else mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        )

    def scan(self) -> Iterator[ScannedRow]:
        if self._data is None:
            return
        opening = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[").match(self._data)
        if opening is None:
            yield 0, 1, "not a JSON array of objects (name the file .jsonl if it has one object a line)"
            return
        start, line, closed = opening.end(), 1 + opening.group().count(b"\n"), False
        while not closed:
            end, closed = self._element_end(start)
            raw = self._data[start:end]
            body = raw.lstrip()
            leading = len(raw) - len(body)
            line += raw[:leading].count(b"\n")
            if body or not closed:
                yield start, line, _parse_object(body) if body else "an empty element"
            if end >= len(self._data):
                yield end, line, "the array is not closed"
                return
            line += body.count(b"\n")
            start = end + 1
        if self._data[start:].strip():
            yield start, line, "text after the end of the array"

    def _element_end(self, start: int) -> tuple[int, bool]:
        """Offset of the comma or bracket that ends the element, and whether the array ends there."""
        assert self._data is not None
        depth = 0
        for token in self._TOKEN.finditer(self._data, start):
            first = token.group()[:1]
            if first in b"[{":
                depth += 1
            elif first in b"]}":
                if depth == 0:
                    return token.start(), True
                depth -= 1
            elif first == b"," and depth == 0:
                return token.start(), False
        return len(self._data), True

    def read_at(self, offset: int) -> dict[str, Any]:
        if self._data is None:
            raise ValueError("the file is empty")
        return _row_or_raise(_parse_object(self._data[offset : self._element_end(offset)[0]]))

    def close(self) -> None:
        if self._data is not None:
            self._data.close()
        self._file.close()


class _TextLines:
    """The lines of a binary file as text, with the offset of the next one."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.offset = 0
        self.line = 0
        """Lines read so far."""

    def seek(self, offset: int, line: int) -> None:
        self._file.seek(offset)
        self.offset, self.line = offset, line

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        raw = self._file.readline()
        if not raw:
            raise StopIteration
        self.offset += len(raw)
        self.line += 1
        # a byte that is not UTF-8 becomes a lone surrogate, by which its row is found out
        return raw.decode("utf-8", "surrogateescape")


_ESCAPED_BYTE = re.compile("[\udc80-\udcff]")


class DelimitedReader:
    """``.csv`` and ``.tsv`` with a header row; quoted cells may hold line ends.

    A comma file whose header has semicolons and no comma is read by semicolons.  A quote that is
    never closed costs the line it stands on, not the rest of the file.
    """

    def __init__(self, path: Path, delimiter: str) -> None:
        csv.field_size_limit(_LARGEST_CELL)
        self._file: BinaryIO = path.open("rb")
        self._path = path
        self._delimiter = delimiter
        self._lines = _TextLines(self._file)
        self._header = self._read_header()

    def _read_header(self) -> list[str]:
        start = len(_BOM) if self._file.read(len(_BOM)) == _BOM else 0
        self._lines.seek(start, 0)
        for text in self._lines:
            if text.strip():
                break
        else:
            return []
        first, last_line = self._lines.offset - len(text.encode("utf-8", "surrogateescape")), self._lines.line
        if self._delimiter == "," and "," not in text and ";" in text:
            self._delimiter = ";"
        self._lines.seek(first, last_line - 1)
        row = self._next()
        if isinstance(row, str):
            raise DatasetError(f"{self._path}:{last_line}: the header cannot be read: {row}")
        header = [name.strip() for name in row or []]
        repeated = sorted({name for name in header if header.count(name) > 1 and name})
        if repeated:
            raise DatasetError(f"{self._path}:{last_line}: column {repeated[0]!r} occurs twice; rename one")
        return header

    def _next(self) -> list[str] | str | None:
        """The next record's cells; a reason; ``None`` at the end.  Leaves the file after the record."""
        start, line = self._lines.offset, self._lines.line
        try:
            cells = next(csv.reader(self._lines, delimiter=self._delimiter, strict=True), None)
        except csv.Error as error:
            self._lines.seek(start, line)
            next(self._lines, None)
            return f"not CSV: {error}"
        if cells and _ESCAPED_BYTE.search("".join(cells)):
            return "not UTF-8"
        return cells

    def _row(self) -> dict[str, Any] | str | None:
        cells = self._next()
        if cells is None or isinstance(cells, str):
            return cells
        if not cells:
            return {}
        if len(cells) != len(self._header):
            return f"{counted(len(cells), 'cell')}, the header has {len(self._header)}"
        return dict(zip(self._header, cells, strict=True))

    def scan(self) -> Iterator[ScannedRow]:
        while True:
            start, line = self._lines.offset, self._lines.line
            row = self._row()
            if row is None:
                return
            if row:
                yield start, line + 1, row

    def read_at(self, offset: int) -> dict[str, Any]:
        self._lines.seek(offset, 0)
        row = self._row()
        if not row:
            raise ValueError("no row there")
        return _row_or_raise(row)

    def close(self) -> None:
        self._file.close()


SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv")
GZIP = ".gz"


def text_suffix(path: Path) -> str:
    """The suffix that says how a file is read: that of what is packed, where it is compressed."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix == GZIP else suffix


def open_reader(path: Path) -> FileReader:
    """The reader for a file by its suffix.  Raises :class:`DatasetError` where it cannot be opened."""
    try:
        match path.suffix.lower():
            case ".csv":
                return DelimitedReader(path, ",")
            case ".tsv":
                return DelimitedReader(path, "\t")
            case ".json":
                return JsonArrayReader(path)
            case _:
                return JsonLinesReader(path)
    except OSError as error:
        raise DatasetError(
            f"{path}: {error.strerror or error}; check the path and its permissions"
        ) from error
