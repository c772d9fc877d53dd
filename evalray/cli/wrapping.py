"""Lines of text in a terminal's width: broken between words, what follows indented below its beginning."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

_INDENT = 2
_BAR = "| "


def unbroken(text: str, style: str = "") -> Text:
    """A line that is never broken, so that a path or a command in it can be copied as it is."""
    return Text(text, style, no_wrap=True, overflow="ignore")


def wrapped(text: Text, console: Console, width: int) -> Iterator[Text]:
    """``text`` line by line, none wider than ``width`` cells unless a word in it is, or it is :func:`unbroken`.

    What follows begins as its line did, where that was quoted behind a bar.
    """
    for line in text.split("\n", allow_blank=True):
        lead = len(line.plain) - len(line.plain.lstrip(" "))
        is_quoted = line.plain.startswith(_BAR, lead)
        begin = " " * lead + (_BAR if is_quoted else "")
        follow = begin if is_quoted else " " * (lead + _INDENT)
        room = width - len(follow)
        longest = max(map(cell_len, line.plain.split()), default=0)
        if text.no_wrap or cell_len(line.plain) <= width or (longest > room and not is_quoted) or room < 1:
            yield line
            continue
        for number, piece in enumerate(line[len(begin) :].wrap(console, room)):
            piece.rstrip()
            yield Text(follow if number else begin, line.style) + piece
