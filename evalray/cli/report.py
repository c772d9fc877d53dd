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
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from evalray.cli.streams import discard_stdout, flush_stdout
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
    has_stdout: bool = True
    """Whether stdout was open when the command started."""

    def error(self, message: str) -> None:
        """One problem, as one line on stderr and in the report."""
        self.errors.append(message)
        sys.stderr.write(f"evalray: {message}\n")

    def say(self, message: str) -> None:
        """One line on stderr; on a terminal as many as it takes."""
        line = safe_line(message, 2_000)
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.text import Text

            _print(Text(line), Console(stderr=True, highlight=False, markup=False, emoji=False))
            return
        sys.stderr.write(line + "\n")
        sys.stderr.flush()

    def show(self, *renderables: RenderableType) -> None:
        """Print for a person: on stdout, or on stderr while stdout is kept for the JSON object.

        A reader that left is nothing to speak of; what could not be written otherwise is an error.
        """
        console = _console()
        try:
            for renderable in renderables:
                _print(renderable, console)
        except (BrokenPipeError, SystemExit):  # Rich ends the program itself for a reader that left
            discard_stdout()
        except OSError as error:
            discard_stdout()
            self.lost_output(error)

    def lost_output(self, error: OSError | None) -> None:
        """What a person should have read on stdout could not be written."""
        if error is not None and not self.wanted:  # else it was stderr
            self.error(f"cannot write to stdout: {error.strerror or error}")
            self.exit_code = self.exit_code or 1

    @property
    def width(self) -> int:
        """Cells of a line of what :meth:`show` prints."""
        return _console().width

    def write(self) -> None:
        """Write the JSON object, if it is wanted and was not written yet."""
        channel, self.channel = self.channel, None
        if channel is not None:
            try:
                with os.fdopen(channel, "w", encoding="ascii") as stdout:
                    stdout.write(self.to_json() + "\n")
            except OSError as error:
                self._lost_json(error.strerror or str(error))
            else:
                if not self.has_stdout:
                    self._lost_json("stdout is closed")

    def _lost_json(self, why: str) -> None:
        self.error(f"the JSON object could not be written to stdout: {why}")
        self.exit_code = self.exit_code or 1

    def to_json(self) -> str:
        payload = {**self.fields, "exit_code": self.exit_code, "errors": self.errors}
        return json.dumps(_finite(payload), allow_nan=False, default=str)


def _console() -> Console:
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _FILE_WIDTH
    return console


def _print(renderable: RenderableType, console: Console) -> None:
    from rich.text import Text

    from evalray.cli.wrapping import wrapped

    if not isinstance(renderable, Text) or not console.is_terminal:
        console.print(renderable, soft_wrap=not console.is_terminal)
        return
    for line in wrapped(renderable, console, console.width):
        console.print(line, soft_wrap=True)


@contextmanager
def json_channel(report: Report) -> Iterator[None]:
    """Keep stdout clean for ``report`` and write it there at the end; does nothing if it is not wanted."""
    if not report.wanted:
        yield
        return
    flush_stdout()
    report.channel = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        flush_stdout()
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
