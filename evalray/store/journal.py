"""An append-only file of JSON lines that survives a kill at any byte.

Each line ends in a checksum of what stands before it, so that opening a journal of a million lines
need not parse them to know that they are whole.  A last line without its newline was torn by a
crash and is cut off on opening; a damaged line further up is counted, named and passed over.
A write that fails leaves the file cut back to its last whole line.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from errno import EINVAL, ENOTSUP, EROFS
from pathlib import Path
from typing import Any

from evalray.errors import StoreError
from evalray.store.jsonlines import encode, store_error, store_errors

VERSION = 1
_SEAL = b',"crc":"'
_SEAL_LENGTH = len(_SEAL) + len('00000000"}\n')
_SYNC_EVERY_SECONDS = 1.0
_BUFFER_BYTES = 1 << 20
_NAMED_LINES = 5


def seal(value: dict[str, Any]) -> bytes:
    """``value`` as a journal line: JSON, its checksum as the last key, a newline."""
    body = encode(value)[:-1].encode("ascii")
    return b'%b,"crc":"%08x"}\n' % (body, zlib.crc32(body))


def is_whole(line: bytes) -> bool:
    """Whether ``line`` is as it was written.  Lines of other writers, unsealed, need to be JSON."""
    if line[-_SEAL_LENGTH : 8 - _SEAL_LENGTH] == _SEAL and line.endswith(b'"}\n'):
        try:
            expected = int(line[-11:-3], 16)
        except ValueError:
            return False
        return zlib.crc32(memoryview(line)[:-_SEAL_LENGTH]) == expected
    return parse(line) is not None


def parse(line: bytes) -> dict[str, Any] | None:
    """The object in ``line``, or ``None`` where there is none."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


@dataclass(slots=True)
class Damage:
    """Lines of one journal that could not be read."""

    path: Path
    count: int = 0
    lines: list[int] = field(default_factory=list)
    """Numbers of the first few, from 1."""

    def add(self, line_number: int) -> None:
        self.count += 1
        if len(self.lines) < _NAMED_LINES:
            self.lines.append(line_number)

    def __str__(self) -> str:
        named = ", ".join(map(str, self.lines)) + (", ..." if self.count > len(self.lines) else "")
        noun = "line" if self.count == 1 else "lines"
        return f"{self.path.name}: {self.count} damaged {noun} passed over ({noun} {named})"


def read_lines(path: Path, damage: Damage | None = None) -> Iterator[tuple[int, bytes]]:
    """``(offset, line)`` of the whole lines of ``path``; nothing for a missing file.

    A torn last line is left out silently, damaged ones are added to ``damage``.
    Raises :class:`StoreError` where the file cannot be read.
    """
    if not path.exists():
        return
    offset = 0
    with store_errors(path), path.open("rb", buffering=1 << 20) as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            if is_whole(line):
                yield offset, line
            elif damage is not None:
                damage.add(number)
            offset += len(line)


def end_of_last_line(path: Path) -> int:
    """Bytes up to and with the last newline of ``path``."""
    with path.open("rb") as file:
        position = file.seek(0, os.SEEK_END)
        while position > 0:
            start = max(0, position - _BUFFER_BYTES)
            file.seek(start)
            found = file.read(position - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            position = start
    return 0


class LineReader:
    """Lines of one journal by their offset.  Close it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with store_errors(path):
            self._file = path.open("rb", buffering=1 << 16) if path.exists() else None

    def read(self, offset: int) -> dict[str, Any]:
        """The object on the line at ``offset``.  Raises :class:`StoreError` where none is there."""
        value = None
        if self._file is not None:
            with store_errors(self.path):
                self._file.seek(offset)
                value = parse(self._file.readline())
        if value is None:
            raise StoreError(f"{self.path}: no line at byte {offset}; the file was changed while it was read")
        return value

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class Journal:
    """The writing end of one journal; one writer.

    Lines gather in memory until :meth:`flush` hands them to the operating system; a background
    thread brings them to the disk at most once a second, so that a slow disk holds nobody up.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with store_errors(path):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            self._written = end_of_last_line(path)
            if os.fstat(self._descriptor).st_size != self._written:
                os.ftruncate(self._descriptor, self._written)
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._failure: StoreError | None = None
        self._writing = False
        self._closed = False
        self._syncer: ThreadPoolExecutor | None = None
        self._sync: Future[None] | None = None
        self._synced_at = time.monotonic()

    @property
    def end(self) -> int:
        """Offset at which the next line will stand."""
        return self._written + self._pending_bytes

    def append(self, line: bytes) -> int:
        """Add a sealed line; returns its offset.  Raises what made an earlier write fail, if one did."""
        if self._failure is not None:
            raise self._failure
        offset = self.end
        self._pending.append(line)
        self._pending_bytes += len(line)
        if self._pending_bytes >= _BUFFER_BYTES:
            self.flush()
        return offset

    def flush(self) -> None:
        """Hand everything to the operating system.  Raises :class:`StoreError` where it refuses."""
        if self._pending and self._failure is None:
            self._write(b"".join(self._pending))
            if self._sync is None and time.monotonic() - self._synced_at >= _SYNC_EVERY_SECONDS:
                if self._syncer is None:
                    self._syncer = ThreadPoolExecutor(1, thread_name_prefix="journal-sync")
                self._sync = self._syncer.submit(os.fdatasync, self._descriptor)
        if self._sync is not None and self._sync.done():
            done, self._sync = self._sync, None
            self._synced_at = time.monotonic()
            self._check_sync(done)

    def _write(self, data: bytes) -> None:
        view, written = memoryview(data), 0
        self._writing = True
        try:
            while written < len(data):
                written += os.write(self._descriptor, view[written:])
        except OSError as error:
            self._failure = store_error(self.path, error)
            self._written += data.rfind(b"\n", 0, written) + 1
            self._pending, self._pending_bytes = [], 0
            # Opening the journal cuts a torn line off too, should this not succeed.
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._written)
            raise self._failure from error
        self._written += written
        self._pending, self._pending_bytes = [], 0
        self._writing = False

    def rescue(self) -> None:
        """Hand what is pending to the operating system, from a signal handler, before the process ends.

        Takes no lock, and writes nothing in the middle of a write; the journal is not used after it.
        """
        pending = b"".join(self._pending)
        if pending and self._failure is None and not (self._writing or self._closed):
            with contextlib.suppress(OSError):
                os.write(self._descriptor, pending)

    def _check_sync(self, done: Future[None]) -> None:
        error = done.exception()
        if isinstance(error, OSError) and not _cannot_sync(error):
            self._failure = store_error(self.path, error)
            raise self._failure from error

    def close(self) -> None:
        """Flush, bring to the disk, close.  Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        try:
            self.flush()
            if self._syncer is not None:
                self._syncer.shutdown(wait=True)
            if self._failure is None:
                with store_errors(self.path):
                    try:
                        os.fdatasync(self._descriptor)
                    except OSError as error:
                        if not _cannot_sync(error):
                            raise
        finally:
            if self._syncer is not None:
                self._syncer.shutdown(wait=True)
            os.close(self._descriptor)


def _cannot_sync(error: OSError) -> bool:
    """A device or file system that knows no fsync, rather than one that failed at it."""
    return error.errno in (EINVAL, ENOTSUP, EROFS)
