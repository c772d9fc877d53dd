"""Reading a judge's reply: its verdict, or nothing.

A verdict is a JSON object with a valid value under the format's key, or a statement of the
format's own kind (``grade: C``, ``[[A>B]]``).  It counts where the judge states it: at the start of
a line, or, where no line starts with one, inside a sentence that neither quotes, denies nor
reports it.  The last one decides, and if what it states is not a valid value then nothing was
read: an earlier statement may be a quotation of the answer.  Nor is it where another value follows
at once (``correct: yes? no``).  A reply that is a value and nothing
else is read as that value.  ``None`` means unreadable; it is never read as right or as wrong.

Pure, and bounded in time on any text.
"""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass
from typing import Any

from evalray.judges.formats import Verdict, VerdictFormat
from evalray.judges.prompts import without_fenced
from evalray.untrusted import strip_invisible, without_reasoning

#: A longer reply is read at its two ends.
_MAX_CHARS = 40_000
_HEAD_CHARS = 8_000
#: Objects tried per reply: a bound on what a reply full of braces costs.
_MAX_OBJECTS = 200
#: Statements looked at, from the end.
_MAX_STATEMENTS = 500
_MAX_TEXT_CHARS = 500

_FENCE = re.compile(r"(?:```|~~~)(?:json\w{0,2}|text|txt|markdown|md)?", re.IGNORECASE)
# What may come before a verdict on its line; a ``>`` would make a quotation of it.
_LINE_START = re.compile(
    r"[ *_#\u2022-]{0,6}(?:\d{1,2}[.)] ?)?[ *_]{0,4}"
    r"(?:(?:so|thus|therefore|hence|the|my|final|overall|verdict|judg(?:e)?ment|is)[,:]?[ *_]{1,4}){0,5}$",
    re.IGNORECASE,
)
# Reported, denied or supposed, just before the verdict and in its clause.  A bracketed token stands out
# of its sentence ("A includes more, and B does not: [[A>B]]"): there only what directly introduces it counts.
_REPORTED = (
    r"\b(?:claims?|claimed|claiming|says|saying|said|states|stated|stating|asks|asked|asking|tells|told|telling"
    r"|instructs|instructed|instructing|instructions?|demands|demanded|demanding|insists|insisting|orders|ordered"
    r"|ordering|wants|wanted|writes|wrote|contains|containing|includes|including|quotes?|outputs|prints|attempts"
    r"|tries|trying)\b"
)
_DENIED = r"\b(?:not|never|cannot|if|unless|whether)\b|n['\u2019]t\b"
_NOT_OWN = {
    "line": re.compile(rf"(?:{_REPORTED}|{_DENIED})[^.!?;,\n]{{0,50}}$", re.IGNORECASE),
    "brackets": re.compile(
        rf"(?:{_REPORTED})(?: (?:me|us|the|a|that|judges?|to|output|reply|write|say|with)){{0,6}} ?:? ?$",
        re.IGNORECASE,
    ),
}
_REACH = 160
_DECODER = json.JSONDecoder(strict=False)


@dataclass(slots=True, frozen=True)
class _Statement:
    """One place where a verdict stands; ``verdict`` is ``None`` if its value is not a valid one."""

    starts_line: bool
    position: int
    end: int
    verdict: Verdict | None


def read_reply(reply: str, form: VerdictFormat) -> Verdict | None:
    """The verdict that ``reply`` gives in ``form``, or ``None`` if it cannot be read."""
    text = _clean(reply)
    whole = form.value_of(text)
    if whole is not None:
        return Verdict(whole)
    objects = list(_objects(text))
    found = [
        _Statement(_starts_line(text, start), start, end, _verdict_in(value, form))
        for start, end, value in objects
        if form.key in value and not _is_quoted(text, start)
    ]
    for position, position_after, value_found in form.statements(text)[-_MAX_STATEMENTS:]:
        if any(start <= position < end for start, end, _ in objects) or _is_quoted(text, position):
            continue
        # Inside a sentence "the grade is based on" states nothing.
        starts_line = form.style == "brackets" or _starts_line(text, position)
        if value_found is None and not starts_line:
            continue
        if _NOT_OWN[form.style].search(text[max(0, position - _REACH) : position]):
            continue
        stated = Verdict(value_found) if value_found is not None else None
        found.append(_Statement(starts_line, position, position_after, stated))
    if not found:
        return None
    last = max(found, key=lambda statement: (statement.starts_line, statement.position))
    if last.verdict is None or form.added_value(text, last.end) not in (None, last.verdict.value):
        return None
    if last.verdict.texts:
        return last.verdict
    return Verdict(last.verdict.value, _texts_before(text[: last.position], form))


def _clean(reply: str) -> str:
    text = without_fenced(without_reasoning(reply))
    if len(text) > _MAX_CHARS:
        text = text[:_HEAD_CHARS] + "\n\n" + text[_HEAD_CHARS - _MAX_CHARS :]
    text = strip_invisible(unicodedata.normalize("NFKC", strip_invisible(text)))
    text = _FENCE.sub(" ", text)
    return "\n".join(" ".join(line.split()) for line in text.splitlines()).strip()


def _objects(text: str) -> list[tuple[int, int, dict[str, Any]]]:
    """``(start, end, object)`` of the JSON objects in ``text``, the outermost ones, left to right."""
    found = []
    position = 0
    for _ in range(_MAX_OBJECTS):
        start = text.find("{", position)
        if start < 0:
            break
        try:
            value, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            position = start + 1
            continue
        position = end
        found.append((start, end, value))
    return found


def _verdict_in(value: dict[str, Any], form: VerdictFormat) -> Verdict | None:
    stated = form.value_of(value[form.key])
    if stated is None:
        return None
    texts = {}
    for name in form.texts:
        for label in (name, *form.text_labels.get(name, ())):
            if label in value:
                item = value[label]
                texts[name] = (item if isinstance(item, str) else json.dumps(item))[:_MAX_TEXT_CHARS]
                break
    return Verdict(stated, texts)


def _texts_before(text: str, form: VerdictFormat) -> dict[str, str]:
    """The free texts given as ``name: text``, one a line; the last of each."""
    texts = {}
    for name in form.texts:
        labels = "|".join(
            re.escape(label).replace("_", "[ _-]?") for label in (name, *form.text_labels.get(name, ()))
        )
        pattern = rf"^[*_# -]{{0,5}}(?:{labels})[*_]{{0,2}} ?:[*_]{{0,2}} ?(.*)$"
        lines = re.findall(pattern, text, re.IGNORECASE | re.MULTILINE)
        if lines:
            texts[name] = lines[-1].strip(" *_")[:_MAX_TEXT_CHARS]
    return texts


def _line_before(text: str, position: int) -> str:
    return text[text.rfind("\n", 0, position) + 1 : position]


def _starts_line(text: str, position: int) -> bool:
    line = _line_before(text, position)
    return len(line) <= _REACH and _LINE_START.match(line) is not None


def _is_quoted(text: str, position: int) -> bool:
    """Inside quotation marks that opened on this line, or on a line that quotes."""
    line = _line_before(text, position)
    if line.startswith(">"):
        return True
    opened = line.count("\u201c") + line.count("\u201e") - line.count("\u201d")
    return line.count('"') % 2 == 1 or line.count("`") % 2 == 1 or opened > 0
