"""One adapter from rules to scores: extract, compare, name the outcome.

Rules are pure functions that know nothing of records and outcomes; every rule-based scorer turns
what they return into a :class:`~evalray.types.Score` here, so that "no answer", "cut off" and
"wrong" mean the same in all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evalray.scorers.base import Answer
from evalray.scorers.text import Extraction
from evalray.types import Outcome, Score

#: Longest extracted or reference text that is kept in a score's metadata, in characters.
_MAX_SHOWN_CHARS = 500


def verdict(
    answer: Answer,
    extraction: Extraction,
    matches: Callable[[str], bool],
    metadata: dict[str, Any],
) -> Score:
    """The score of one answer; ``matches`` is asked only about a value that was read.

    An answer from which nothing was read is ``truncated`` where the token limit stopped it and
    ``unparsed`` otherwise.  ``metadata`` gets ``extracted`` and ``rule`` added.
    """
    metadata = {"extracted": shown(extraction.value), "rule": extraction.rule, **metadata}
    if extraction.value is None:
        return Score(Outcome.TRUNCATED if answer.truncated else Outcome.UNPARSED, metadata=metadata)
    outcome = Outcome.CORRECT if matches(extraction.value) else Outcome.INCORRECT
    return Score(outcome, metadata=metadata)


def unusable_reference(reference: str, reason: str) -> Score:
    """The record's own reference cannot be compared with: our fault or the data's, not the model's."""
    return Score(Outcome.SCORER_ERROR, metadata={"reason": reason, "reference": shown(reference)})


def shown(value: str | None) -> str | None:
    """``value``, shortened to what is worth storing once per sample."""
    if value is None or len(value) <= _MAX_SHOWN_CHARS:
        return value
    return value[:_MAX_SHOWN_CHARS] + "\N{HORIZONTAL ELLIPSIS}"
