"""Where a command's last word goes: one JSON object on stdout with ``--json``, nothing of it otherwise.

While a JSON report is wanted, file descriptor 1 points at stderr, for this process and every child
it starts, so that no library, worker or warning can write beside the object.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from evalray.cli.text import safe_line

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

#: Width of what is not shown on a terminal: wide enough that no name is folded.
_FILE_WIDTH = 160


@dataclass(slots=True)
class Report:
    """What a command says to a program.  ``fields`` lead the object, ``errors`` and ``exit_code`` end it."""

    args: list[str] = field(default_factory=list)
    wanted: bool = False
    verbose: bool = False
    exit_code: int = 0
    errors: list[str] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)
    channel: int | None = None
    """Where the JSON object goes, until it was written."""

    def error(self, message: str) -> None:
        """One problem, as one line on stderr and in the report."""
        self.errors.append(message)
        sys.stderr.write(f"evalray: {message}\n")

    def say(self, message: str) -> None:
        """One line on stderr."""
        sys.stderr.write(safe_line(message, 2_000) + "\n")
        sys.stderr.flush()

    def show(self, *renderables: RenderableType) -> None:
        """Print for a person: on stdout, or on stderr while stdout is kept for the JSON object."""
        console = _console()
        for renderable in renderables:
            console.print(renderable, soft_wrap=not console.is_terminal)

    @property
    def width(self) -> int:
        """Cells of a line of what :meth:`show` prints."""
        return _console().width

    def write(self) -> None:
        """Write the JSON object, if it is wanted and was not written yet."""
        channel, self.channel = self.channel, None
        if channel is not None:
            with suppress(OSError), os.fdopen(channel, "w", encoding="ascii") as stdout:
                stdout.write(self.to_json() + "\n")

    def to_json(self) -> str:
        payload = {**self.fields, "exit_code": self.exit_code, "errors": self.errors}
        return json.dumps(_finite(payload), allow_nan=False, default=str)


def _console() -> Console:
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _FILE_WIDTH
    return console


@contextmanager
def json_channel(report: Report) -> Iterator[None]:
    """Keep stdout clean for ``report`` and write it there at the end; does nothing if it is not wanted."""
    if not report.wanted:
        yield
        return
    sys.stdout.flush()
    report.channel = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        report.write()


def _finite(value: Any) -> Any:
    """NaN and infinities are no JSON: they become ``None``, not measured."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
