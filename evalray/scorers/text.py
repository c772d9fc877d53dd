"""What every rule shares: reading untrusted model text safely and in bounded time.

A rule looks at a *window* of the answer, its first and last :data:`WINDOW_CHARS` characters: what a
model states as its answer stands at one of the two ends, and every rule stays fast on a reply of
any size.  Patterns used on the window have no nested or adjacent unbounded repetitions, so that
their time is linear in it.
"""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from dataclasses import dataclass
from typing import Literal

from evalray.untrusted import strip_invisible, without_reasoning

#: Characters looked at from either end of an answer; one of up to twice this is read whole.
WINDOW_CHARS = 16_000
_JOINT = "\n\n\N{HORIZONTAL ELLIPSIS}\n\n"
#: A token cut by the window's edge is dropped up to this length.
_MAX_TOKEN_CHARS = 256

_DOUBTS = r"(?:no|wait|actually|hm+|sorry|rather|i mean|make that)"
#: What may stand between a value and another one on its line that takes it back at once:
#: ``A? B``, ``5 ... wait, 6``, ``A. No, B``.  A bare stop or comma does not.
TAKING_BACK = (
    rf"(?:(?:\?+|\.{{2,}}|\u2026|->|=>|\u2192)[.,;!?]{{0,3}} ?|[.,;!?\-\u2013\u2014]{{1,3}} ?(?=(?i:{_DOUBTS})\b))"
    rf"(?:(?i:{_DOUBTS}|it is|it's)\b[.,;:!?\u2026]{{0,4}} ?){{0,4}}"
)


@dataclass(slots=True, frozen=True)
class Extraction:
    """What a rule read from an answer: the value, or ``None``, and the name of the rule that fired."""

    value: str | None
    rule: str


NOTHING = Extraction(None, "none")


def window(text: str) -> str:
    """The part of ``text`` that rules look at: no reasoning, and of a long one its two ends.

    The tokens at the cut are dropped, never shortened.
    """
    text = without_reasoning(text)
    if len(text) <= 2 * WINDOW_CHARS:
        return text
    head, tail = text[:WINDOW_CHARS], text[-WINDOW_CHARS:]
    head_edge = re.search(r"\s", head[: -_MAX_TOKEN_CHARS - 1 : -1])
    tail_edge = re.search(r"\s", tail[:_MAX_TOKEN_CHARS])
    head = head[: len(head) - (head_edge.start() if head_edge else _MAX_TOKEN_CHARS)]
    return head + _JOINT + tail[tail_edge.start() if tail_edge else _MAX_TOKEN_CHARS :]


def squeeze_lines(text: str) -> str:
    """Runs of blanks become one space, lines lose their margins; blank lines stay."""
    return "\n".join([" ".join(line.split()) for line in text.split("\n")])


def last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The last of the pattern's matches, found from the left without overlap."""
    found = deque(pattern.finditer(text), maxlen=1)
    return found[0] if found else None


def lower_in_place(text: str) -> str:
    """``text`` in lower case with every position kept, which ``str.lower`` does not promise."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(low if len(low := char.lower()) == 1 else char for char in text)


_RUN_ON = re.compile(
    r"\n ?[#*]{0,4} ?(?:question|problem|frage|q|user|human)\b ?#?\d{0,4}[*:.)]", re.IGNORECASE
)


def before_run_on(text: str) -> str | None:
    """The part before the model goes on to ask itself a new question; ``None`` if it does not.

    Base models shown ``Question: ... Answer: ...`` continue the pattern after their own answer.
    """
    match = _RUN_ON.search(text)
    if match is None or not text[: match.start()].strip():
        return None
    return text[: match.start()]


_BOX_OR_BRACE = re.compile(r"\\[fd]?boxed ?\{|\\fbox ?\{|\\[{}]|[{}]")


def boxed_contents(text: str) -> list[tuple[int, str]]:
    r"""``(position, content)`` of every closed ``\boxed{...}``, braces balanced, in order of their ends.

    One pass, so linear in the text however deep the nesting.
    """
    if "box" not in text:
        return []
    found: list[tuple[int, str]] = []
    open_braces: list[tuple[int, int]] = []  # (position of the command or -1, start of the content)
    for match in _BOX_OR_BRACE.finditer(text):
        token = match.group()
        if token == "}":
            if open_braces:
                position, start = open_braces.pop()
                if position >= 0:
                    found.append((position, text[start : match.start()]))
        elif token == "{":
            open_braces.append((-1, match.end()))
        elif len(token) > 2:
            open_braces.append((match.start(), match.end()))
    return found


_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_EDGE_MARKS = " \t\n\r\"'`*_~#.,;:!?\u2018\u2019\u201c\u201d\u00ab\u00bb\u2026"

Punctuation = Literal["edges", "all", "keep"]


def normalize_text(
    text: str,
    *,
    ignore_case: bool = True,
    punctuation: Punctuation = "edges",
    ignore_articles: bool = False,
) -> str:
    """``text`` as it is compared: NFKC, one space between words, case folded.

    ``punctuation``: ``edges`` drops quotation marks, emphasis and sentence marks around the whole
    text, ``all`` every punctuation character anywhere, ``keep`` none.  A sign before a number is
    kept always: ``-5`` never equals ``5``.
    """
    text = strip_invisible(unicodedata.normalize("NFKC", text))
    if ignore_case:
        # Folding can decompose what NFKC composed, and the other way round.
        text = unicodedata.normalize("NFKC", text.casefold())
    # Control characters that count as white space are no edge marks.
    text = " ".join(text.replace("\N{MINUS SIGN}", "-").split())
    if punctuation == "edges":
        bare = text.strip(_EDGE_MARKS)
        # In ".5" the point is no sentence's.
        decimal = bare[:1].isdigit() and text[: text.find(bare)].endswith(".")
        text = f".{bare}" if decimal else bare
    elif punctuation == "all":
        text = "".join(
            char
            for index, char in enumerate(text)
            if not unicodedata.category(char).startswith("P") or _is_part_of_number(text, index)
        )
    if ignore_articles:
        text = _ARTICLES.sub(" ", text)
    return " ".join(text.split())


def _is_part_of_number(text: str, index: int) -> bool:
    following = text[index + 1 : index + 2]
    if not following.isdigit():
        return False
    before = text[index - 1] if index else " "
    return (text[index] == "-" and before.isspace()) or (text[index] == "." and before.isdigit())
