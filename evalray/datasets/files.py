"""A row source over local text files: any number of files, a few open at a time."""

from __future__ import annotations

import gzip
import shutil
import tempfile
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from evalray.datasets.lines import GZIP, FileReader, open_reader
from evalray.datasets.source import ScannedRow
from evalray.errors import DatasetError

#: A key is the file's number above, the byte offset below: a million files of 16 TiB.
_OFFSET_BITS = 44
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1
_MAX_OPEN = 8
_CHUNK_BYTES = 1 << 20


class TextFiles:
    """The rows of ``paths``, one file after another in the order given.  Not for two threads at once."""

    batch = 1

    def __init__(self, paths: Sequence[Path]) -> None:
        self.column_names: Sequence[str] = ()
        self._paths = list(paths)
        self._unpacked = Unpacked()
        self._open: OrderedDict[int, FileReader] = OrderedDict()
        self._stamps: dict[int, tuple[int, int]] = {}

    def scan(self, columns: Sequence[str]) -> Iterator[ScannedRow]:
        del columns  # a text row is parsed whole
        for number, path in enumerate(self._paths):
            base = number << _OFFSET_BITS
            reader = open_reader(self._unpacked.path(path))
            try:
                self._stamps[number] = _stamp(path)
                for offset, line, row in reader.scan():
                    if not self.column_names and isinstance(row, dict):
                        self.column_names = list(row)
                    yield base | offset, line, row
            except OSError as error:
                raise DatasetError(f"{path}: {error.strerror or error}") from error
            finally:
                reader.close()

    def where(self, key: int, line: int) -> str:
        return f"{self._paths[key >> _OFFSET_BITS]}:{line}"

    def read(self, keys: Sequence[int]) -> list[dict[str, Any]]:
        return [self._read(key) for key in keys]

    def _read(self, key: int) -> dict[str, Any]:
        number = key >> _OFFSET_BITS
        path = self._paths[number]
        try:
            return self._reader(number).read_at(key & _OFFSET_MASK)
        except (OSError, ValueError) as error:
            raise DatasetError(f"{path}: changed while it was being read ({error}); run again") from error

    def _reader(self, number: int) -> FileReader:
        reader = self._open.get(number)
        if reader is not None:
            self._open.move_to_end(number)
            return reader
        path = self._paths[number]
        if _stamp(path) != self._stamps[number]:
            raise DatasetError(f"{path}: changed while it was being read; run again")
        reader = self._open[number] = open_reader(self._unpacked.path(path))
        if len(self._open) > _MAX_OPEN:
            self._open.popitem(last=False)[1].close()
        return reader


class Unpacked:
    """Where compressed files lie unpacked, since rows are read by their offset: in a folder that goes
    with this object."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._copies: dict[Path, Path] = {}

    def path(self, path: Path) -> Path:
        """``path``, or the plain copy of one that ends in ``.gz``.  Raises :class:`DatasetError`."""
        if path.suffix.lower() != GZIP:
            return path
        if path not in self._copies:
            self._copies[path] = self._unpack(path)
        return self._copies[path]

    def _unpack(self, path: Path) -> Path:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="evalray-data-")
        copy = Path(self._folder.name) / f"{len(self._copies)}-{path.stem}"
        try:
            with gzip.open(path, "rb") as packed, copy.open("wb") as plain:
                shutil.copyfileobj(packed, plain, _CHUNK_BYTES)
        except (OSError, EOFError, zlib.error) as error:
            raise DatasetError(
                f"{path}: cannot be unpacked: {error}; check the file and the space in {self._folder.name}"
            ) from error
        return copy


def _stamp(path: Path) -> tuple[int, int]:
    facts = path.stat()
    return facts.st_size, facts.st_mtime_ns
