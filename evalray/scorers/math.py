"""Mathematical answers: equal as text, as numbers, or as expressions.

What can be decided by text or by exact arithmetic is decided at once.  The rest asks the
``math-verify`` library, which is loaded only there; since it can run for ever on hostile input, the
scorer is ``isolated``: it runs in a worker process that is killed when its time is up, and the
library's own timers, which work only on a main thread, stay off.  What the library raises is an
error of the scorer, never a wrong answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from evalray.scorers.base import Answer, Scorer
from evalray.scorers.number import numbers_equal, unit_words
from evalray.scorers.text import (
    NOTHING,
    Extraction,
    boxed_contents,
    last_match,
    normalize_text,
    squeeze_lines,
    window,
)
from evalray.scorers.verdict import shown, unusable_reference, verdict
from evalray.types import EvalRecord, Outcome, Score

_MARKER = re.compile(
    r"(?<![a-z])(?:answer|antwort)[*_]{0,2} ?(?::|is:?|lautet)[*_]{0,2} ?(?=\S)", re.IGNORECASE
)
_DELIMITED = re.compile(
    r"\$\$([^$]{1,2000})\$\$|\$([^$]{1,2000})\$|\\\[([^\[\]]{1,2000})\\\]|\\\(([^()]{1,2000})\\\)"
)
_MAX_BARE_REPLY_CHARS = 200


def extract_math(text: str, *, explicit_only: bool = False) -> Extraction:
    r"""The expression that ``text`` gives as its answer, without its delimiters.

    The last closed ``\boxed{...}`` (braces balanced), else what follows the last ``answer is`` or
    ``answer:``, else the last ``$...$``, else a reply of one short line.  ``explicit_only`` keeps
    to the first two, and of a marker only what is closed by ``$`` or a line end.
    """
    text = squeeze_lines(window(text))
    boxes = boxed_contents(text)
    if boxes and boxes[-1][1].strip():
        return Extraction(boxes[-1][1].strip(), "boxed")
    marker = last_match(_MARKER, text)
    if marker is not None:
        line_end = text.find("\n", marker.end())
        line = text[marker.end() : line_end if line_end >= 0 else len(text)]
        delimited = _first_delimited(line)
        if delimited:
            return Extraction(delimited, "answer")
        if line_end >= 0 or not explicit_only:
            return Extraction(line.strip(), "answer")
    if explicit_only:
        return NOTHING
    last = last_match(_DELIMITED, text)
    if last is not None:
        inner = next(group for group in last.groups() if group is not None).strip()
        if inner:
            return Extraction(inner, "last_math")
    whole = text.strip()
    if whole and "\n" not in whole and len(whole) <= _MAX_BARE_REPLY_CHARS:
        return Extraction(whole, "whole_reply")
    return NOTHING


def _first_delimited(line: str) -> str | None:
    match = _DELIMITED.search(line)
    return next(group for group in match.groups() if group is not None).strip() if match else None


_IGNORED_LATEX = re.compile(r"\\(?:left|right|displaystyle|[!,;:> ])(?![A-Za-z])|\$|\\[()\[\]]|\s")
_QUANTIFIER = re.compile(
    r"\\forall|\\exists|[\u2200\u2203\u2204]|\b(?:for\s+(?:all|every|any|each)|forall|there\s+exists?|exists)\b",
    re.IGNORECASE,
)
_INTEGER = re.compile(r"-?\d{1,300}$")
_TEXT_COMMAND = re.compile(r"\\(?:text(?:bf|it|rm)?|mbox|mathrm|mathbf)\s?\{([^{}]*)\}")
_WORDS = re.compile(r"[A-Za-z][A-Za-z ,.'-]*$")
_MATH_WORDS = frozenset(
    "pi sqrt sin cos tan log ln exp inf infinity oo theta alpha beta gamma and or in".split()  # noqa: SIM905
)


def canonical_text(expression: str) -> str:
    """``expression`` without what never changes its meaning: delimiters, blanks, sizing, fraction style."""
    expression = _IGNORED_LATEX.sub("", expression.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac"))
    return expression.replace("\N{MINUS SIGN}", "-").rstrip(".")


def quick_match(reference: str, candidate: str) -> bool | None:
    """Whether the two are equal, as far as text and exact numbers can tell; ``None`` if they cannot."""
    left, right = canonical_text(reference), canonical_text(candidate)
    if left == right:
        return True
    if bool(_QUANTIFIER.search(reference)) != bool(_QUANTIFIER.search(candidate)):
        return False
    if _INTEGER.match(left) and _INTEGER.match(right):
        return int(left) == int(right)
    plainly_a_number = "\\" in candidate or unit_words(candidate) is not None
    if "%" not in left + right and plainly_a_number and numbers_equal(reference, candidate):
        return True
    # A bare list given as a tuple; the other way round an interval or a point would lose its brackets.
    if "," in left and right == f"({left})":
        return True
    words = _plain_words(reference), _plain_words(candidate)
    if words[0] is not None and (words[1] is not None or _INTEGER.match(right)):
        return words[0] == words[1]
    return None


def _plain_words(expression: str) -> str | None:
    """The normalised text of an expression that is words and no mathematics, else ``None``."""
    plain = _TEXT_COMMAND.sub(r"\1", expression).replace("$", "").strip()
    if not _WORDS.match(plain):
        return None
    words = plain.lower().replace(",", " ").split()
    if any(len(word) < 2 or word in _MATH_WORDS for word in words):
        return None
    return normalize_text(plain)


@dataclass(slots=True, frozen=True)
class MathScorer(Scorer):
    """Compares the expression that an answer gives with the reference.

    An expression that the library cannot read is ``unparsed``; a reference that it cannot read,
    and a comparison that fails, is ``scorer_error``.  Two different statements with quantifiers
    are compared as text only and otherwise left undecided, since the library drops quantifiers.
    """

    scorer_id: ClassVar[str] = "math"
    version: ClassVar[int] = 2
    isolated: ClassVar[bool] = True

    def warm_up(self) -> None:
        from evalray.scorers.equivalence import expressions_equal

        expressions_equal("$1$", "$2$")

    def shortcut(self, record: EvalRecord, answer: Answer) -> Score | None:
        reference, extraction = self._read(record, answer)
        if not reference:
            return unusable_reference(record.reference, "missing_reference")
        metadata: dict[str, Any] = {"reference": shown(reference)}
        if extraction.value is None:
            return verdict(answer, extraction, lambda _: False, metadata)
        equal = quick_match(reference, extraction.value)
        return None if equal is None else verdict(answer, extraction, lambda _: equal, metadata)

    def assess(self, record: EvalRecord, answer: Answer) -> Score:
        quick = self.shortcut(record, answer)
        if quick is not None:
            return quick
        from evalray.scorers import equivalence

        reference, extraction = self._read(record, answer)
        candidate = extraction.value
        assert candidate is not None  # the shortcut has dealt with it
        metadata: dict[str, Any] = {
            "extracted": shown(candidate),
            "rule": extraction.rule,
            "reference": shown(reference),
        }
        if _QUANTIFIER.search(reference):
            metadata["reason"] = "quantified_statements_differ_as_text"
            return Score(Outcome.SCORER_ERROR, metadata=metadata)
        try:
            equal = equivalence.expressions_equal(reference, candidate)
        except equivalence.UnreadableReferenceError:
            metadata["reason"] = "reference_not_understood"
            return Score(Outcome.SCORER_ERROR, metadata=metadata)
        except equivalence.UnreadableAnswerError:
            metadata["reason"] = "answer_not_understood"
            return Score(Outcome.TRUNCATED if answer.truncated else Outcome.UNPARSED, metadata=metadata)
        except Exception as error:  # noqa: BLE001  (the library raises anything)
            metadata.update(reason="comparison_failed", error=shown(f"{type(error).__name__}: {error}"))
            return Score(Outcome.SCORER_ERROR, metadata=metadata)
        return verdict(answer, extraction, lambda _: equal, {"reference": shown(reference)})

    @staticmethod
    def _read(record: EvalRecord, answer: Answer) -> tuple[str, Extraction]:
        boxes = boxed_contents(record.reference)
        reference = (boxes[-1][1] if boxes else record.reference).strip()
        return reference, extract_math(answer.text, explicit_only=answer.truncated)
