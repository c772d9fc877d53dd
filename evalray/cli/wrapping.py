"""Lines of text in a terminal's width: broken between words, what follows indented below its beginning."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

_INDENT = 2


def unbroken(text: str, style: str = "") -> Text:
    """A line that is never broken, so that a path or a command in it can be copied as it is."""
    return Text(text, style, no_wrap=True, overflow="ignore")


def wrapped(text: Text, console: Console, width: int) -> Iterator[Text]:
    """``text`` line by line, none wider than ``width`` cells unless a word is, or it is :func:`unbroken`."""
    for line in text.split("\n", allow_blank=True):
        if text.no_wrap or cell_len(line.plain) <= width:
            yield line
            continue
        lead = len(line.plain) - len(line.plain.lstrip(" "))
        hang = min(lead + _INDENT, width // 2)
        for number, piece in enumerate(line[lead:].wrap(console, width - hang)):
            piece.rstrip()
            yield Text(" " * (hang if number else min(lead, hang))) + piece
