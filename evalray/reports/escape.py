"""Make untrusted text safe to place in a Markdown table, a CSV cell or a line of plain text.

Models, data sets and configurations write whatever they like; a report is opened in browsers, in
Markdown renderers that allow inline HTML, and in spreadsheets that run formulas.  HTML pages are
escaped by the template engine itself.
"""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_MARKDOWN = re.compile(r"([\\`*_\[\]#|~$!])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_SCHEME = re.compile(r"(?i)\b(https?|ftp|file|javascript|data|mailto|www)(?=[:.])")
#: A spreadsheet takes a cell that begins with one of these as a formula.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%")


def plain(text: str, limit: int = 0) -> str:
    """Encodable text: lone surrogates, NULs, terminal and direction controls become U+FFFD.

    With ``limit``, at most that many characters, the cut marked by an ellipsis.
    """
    safe = text.encode("utf-8", "replace").decode("utf-8") if _has_surrogates(text) else text
    safe = _CONTROL.sub("\ufffd", safe.replace("\r\n", "\n"))
    return safe if limit <= 0 or len(safe) <= limit else safe[: limit - 1].rstrip() + "…"


def markdown(text: str, limit: int = 0) -> str:
    """One line that shows as written in a Markdown table cell or paragraph, whatever it holds."""
    line = " ".join(plain(text, limit).split())
    line = _MARKDOWN.sub(r"\\\1", line)
    for character, entity in _ENTITIES.items():
        line = line.replace(character, entity)
    # A renderer that turns bare addresses into links would make a model's text clickable.
    return _SCHEME.sub(lambda match: match[1] + "\u2060", line)


def csv_cell(value: object) -> object:
    """The value, with an apostrophe before text that a spreadsheet would run as a formula."""
    if not isinstance(value, str):
        return value
    text = plain(value)
    return "'" + text if text.lstrip(" ").startswith(_FORMULA_STARTS) else text


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text) if not text.isascii() else False
