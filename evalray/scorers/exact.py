"""Exact match: the answer's text against one or several references, normalised in declared ways."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from evalray.scorers.base import Answer, Scorer
from evalray.scorers.text import (
    NOTHING,
    Extraction,
    Punctuation,
    last_match,
    normalize_text,
    squeeze_lines,
    window,
)
from evalray.scorers.verdict import shown, unusable_reference, verdict
from evalray.types import EvalRecord, Score
from evalray.untrusted import without_reasoning

_MARKER = re.compile(
    r"(?<![a-z])(?:answer|antwort)[*_]{0,2} ?:[*_]{0,2} ?(?=\S)|(?<![a-z])answer is:? ?(?=\S)", re.IGNORECASE
)


def extract_stated(text: str, *, explicit_only: bool = False) -> Extraction:
    """The rest of the line after the last ``answer:`` or ``answer is``; otherwise the whole text.

    ``explicit_only``: only a marker whose line is complete, that is, followed by another line.
    """
    text = squeeze_lines(window(text))
    marker = last_match(_MARKER, text)
    if marker is not None:
        line_end = text.find("\n", marker.end())
        stated = text[marker.end() : line_end if line_end >= 0 else len(text)].strip()
        if stated and not (explicit_only and line_end < 0):
            return Extraction(stated, "marker")
    whole = text.strip()
    return NOTHING if explicit_only or not whole else Extraction(whole, "whole_reply")


@dataclass(slots=True, frozen=True)
class ExactScorer(Scorer):
    """The answer equals a reference after normalisation: the whole answer, or what it states last.

    References: ``metadata["references"]`` (a list) if the record has one, else ``reference``,
    split at ``separator`` where one is given.
    """

    scorer_id: ClassVar[str] = "exact"
    version: ClassVar[int] = 2

    ignore_case: bool = True
    punctuation: Punctuation = "edges"
    ignore_articles: bool = False
    separator: str | None = None
    whole_reply: bool = False
    """Compare nothing but the whole answer: no ``answer:`` marker is looked for."""

    def __post_init__(self) -> None:
        if self.separator == "":
            raise ValueError("separator must not be empty")

    def assess(self, record: EvalRecord, answer: Answer) -> Score:
        references = self._references(record)
        wanted = {normalized for reference in references if (normalized := self._normalize(reference))}
        if not wanted:
            return unusable_reference(record.reference, "missing_reference")
        metadata = {"reference": shown(references[0])}
        whole = without_reasoning(answer.text).strip()
        if not answer.truncated:
            longest = max(map(len, wanted))
            # Normalising grows a text by far less than this; a longer answer cannot be equal.
            if len(whole) <= 20 * longest + 1_000 and self._normalize(whole) in wanted:
                return verdict(answer, Extraction(whole, "whole_reply"), lambda _: True, metadata)
        extraction = NOTHING
        if not self.whole_reply:
            extraction = extract_stated(answer.text, explicit_only=answer.truncated)
        elif whole and not answer.truncated:
            extraction = Extraction(window(whole), "whole_reply")
        return verdict(answer, extraction, lambda value: self._normalize(value) in wanted, metadata)

    def _references(self, record: EvalRecord) -> list[str]:
        several = record.metadata.get("references")
        if isinstance(several, list | tuple) and several:
            return [str(reference) for reference in several]
        if self.separator is not None:
            return record.reference.split(self.separator)
        return [record.reference]

    def _normalize(self, text: str) -> str:
        return normalize_text(
            text,
            ignore_case=self.ignore_case,
            punctuation=self.punctuation,
            ignore_articles=self.ignore_articles,
        )
