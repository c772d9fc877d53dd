"""JSON as the run directory writes it: total, compact, ASCII.

Whatever a model, a server or a dataset put in comes out as one valid line: lone surrogates are
escaped and read back as they were, non-finite numbers become ``null``, foreign objects their text.
Whole files are written beside and renamed, so that a reader sees the old one or the new one.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from errno import EACCES, EDQUOT, EEXIST, ENOSPC, ENOTDIR, EPERM, EROFS
from pathlib import Path
from typing import IO, Any

from evalray.errors import DiskFullError, StoreError

_NO_ROOM = (ENOSPC, EDQUOT)
_MAX_DEPTH = 64
_MAX_INT_BITS = 4096
_SECRET_KEYS = {
    "access_token",
    "api-key",
    "api_key",
    "apikey",
    "auth_token",
    "authorization",
    "bearer",
    "hf_token",
    "password",
    "secret",
}
_URL_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")


def _foreign(value: Any) -> Any:
    """What stands for an object JSON does not know: a number for NumPy scalars, text for the rest."""
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "ndim", None) == 0:
        return item()
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in fields(value)}
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    return str(value)


_encode_strict = json.JSONEncoder(
    ensure_ascii=True, allow_nan=False, separators=(",", ":"), default=_foreign
).encode


def encode(value: Any) -> str:
    """``value`` as one line of ASCII JSON.  Never raises for data."""
    try:
        return _encode_strict(value)
    except (ValueError, TypeError, RecursionError):
        return _encode_strict(_plain(value, 0))


def shallow(value: Any) -> Any:
    """``value`` with what is nested too deeply to go through as text."""
    return _plain(value, 0)


def _plain(value: Any, depth: int) -> Any:
    """A copy of ``value`` that any JSON reader takes; cycles and bottomless nesting become text."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value) if value.bit_length() <= _MAX_INT_BITS else None
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if depth > _MAX_DEPTH:
        return f"<nested deeper than {_MAX_DEPTH}>"
    if isinstance(value, dict):
        return {str(key): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value]
    return _plain(_foreign(value), depth + 1)


def redact(value: Any) -> Any:
    """A copy without secrets: values of keys such as ``api_key``, credentials inside URLs."""
    if isinstance(value, dict):
        return {
            key: "<redacted>" if str(key).lower() in _SECRET_KEYS and item else redact(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [redact(item) for item in value]
    if isinstance(value, str) and "://" in value:
        return _URL_CREDENTIALS.sub("", value)
    return value


def without_lone_surrogates(text: str) -> str:
    """``text`` as valid Unicode: lone surrogates become U+FFFD, pairs the character they spell."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


@contextlib.contextmanager
def written_beside(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that takes ``path``'s place when the block ends well, and is removed when not.

    Raises :class:`StoreError` for anything the file system refuses.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        with store_errors(path):
            with partial.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
            sync_directory(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


@contextlib.contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Turn an :class:`OSError` on ``path`` into a :class:`StoreError` that says what to do."""
    try:
        yield
    except OSError as error:
        raise store_error(path, error) from error


def store_error(path: Path, error: OSError) -> StoreError:
    reason = error.strerror or str(error)
    if is_disk_full(error):
        return DiskFullError(
            f"{path}: {reason}; free some space and run the same command again, finished samples are kept"
        )
    if error.errno in (EACCES, EPERM, EROFS):
        return StoreError(f"{path}: not writable ({reason}); choose another place with --output-dir")
    if error.errno in (EEXIST, ENOTDIR):
        return StoreError(f"{path}: a file stands where a directory should be; choose another --output-dir")
    return StoreError(f"{path}: {reason}; check the disk and run the same command again to continue")


def is_disk_full(error: BaseException) -> bool:
    """Whether the file system, or the user's share of it, has no room left."""
    return isinstance(error, DiskFullError) or (isinstance(error, OSError) and error.errno in _NO_ROOM)


def move_aside(path: Path, *, suffix: str = "") -> None:
    """Rename to ``<name>.<timestamp>``, before ``suffix``, the end of the name; nothing is replaced.

    Raises :class:`StoreError`.
    """
    stem, number = f"{path.name.removesuffix(suffix)}.{datetime.now(UTC):%Y%m%dT%H%M%S}", 0
    target = path.with_name(f"{stem}{suffix}")
    while target.exists():
        number += 1
        target = path.with_name(f"{stem}-{number:03}{suffix}")
    with store_errors(path):
        path.rename(target)
        sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make renames in ``directory`` durable, where the file system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def pretty(value: Any) -> bytes:
    """``value`` as indented ASCII JSON, for files that people read."""
    text = json.dumps(_plain(value, 0), indent=2, ensure_ascii=True, allow_nan=False)
    return text.encode("ascii") + b"\n"


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` to ``path``, indented, beside and renamed."""
    text = pretty(value)
    with written_beside(path) as file:
        file.write(text)


def read_json(path: Path) -> dict[str, Any]:
    """The object in ``path``.  Raises :class:`StoreError` where it is missing or is none."""
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path}: not JSON ({error}); restore it or start anew with --fresh") from error
    if not isinstance(value, dict):
        raise StoreError(f"{path}: not a JSON object; restore it or start anew with --fresh")
    return value
