"""Standard streams that may be closed, full or without a reader: none of it stops a command.

What a program should read, the JSON object, is never lost in silence; what a person should read on
stderr may be; a reader that left (``| head``) has what it wanted.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Any


class _Forgiving(io.FileIO):
    """A file that takes what it cannot write for written."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or 0
        except OSError:
            return memoryview(data).nbytes


def prepare_streams() -> bool:
    """Make the standard streams usable; whether stdout leads anywhere.

    A descriptor that was closed is opened on nothing, so that no other file gets its number.
    """
    leads_anywhere = sys.stdout is not None
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            _to_nothing(number)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None or _is_descriptor_2(sys.stderr):
        encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
        raw = io.BufferedWriter(_Forgiving(2, "wb", closefd=False))
        sys.stderr = io.TextIOWrapper(raw, encoding=encoding, line_buffering=True)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    return leads_anywhere


def discard_stdout() -> None:
    """Nothing more can be written there: what is buffered, and what still comes, goes nowhere."""
    _to_nothing(1)


def flush_stdout() -> OSError | None:
    """Write what is buffered; what went wrong, unless the reader left."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()
    except ValueError:
        pass
    except OSError as error:
        discard_stdout()
        return error
    return None


def _is_descriptor_2(stream: Any) -> bool:
    try:
        return bool(stream.fileno() == 2)
    except (AttributeError, OSError, ValueError):
        return False


def _to_nothing(number: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    if nothing != number:
        os.dup2(nothing, number)
        os.close(nothing)
    else:
        os.set_inheritable(number, True)
