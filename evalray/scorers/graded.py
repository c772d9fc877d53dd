"""Free-text answers that a judge compares with the reference: FRAMES, HLE, SimpleQA, reasoning.

FRAMES and HLE ask the judge about every answer.  SimpleQA and reasoning ask only where no rule
finds the answer right: a rule that finds no equality does not prove a difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from evalray.judges import VerdictFormat, read_reply
from evalray.scorers.base import Answer, JudgeCall, Scorer
from evalray.scorers.exact import extract_stated
from evalray.scorers.judged import (
    EXTRACTED,
    EXTRACTED_LABELS,
    EXTRACTED_WANTED,
    YES_OR_NO,
    answer_text,
    comparison_prompt,
    empty_answer,
    judged,
    reply_metadata,
    unreadable,
)
from evalray.scorers.math import extract_math, quick_match
from evalray.scorers.text import Extraction, boxed_contents, normalize_text
from evalray.scorers.verdict import shown, unusable_reference, verdict
from evalray.types import EvalRecord, Outcome, Score

_TASK = "You compare an answer to a question with the reference answer and decide whether it is right."
_COMMON = (
    "The reference is right. Do not solve the question yourself and do not argue with the reference.",
    "Judge the final answer only: not its style, its length or the way it was reached.",
    "Another wording, spelling, format, unit or order of a list is no difference where the meaning is the same.",
    "An answer that gives several different final answers, or none, is not right.",
)


@dataclass(slots=True, frozen=True)
class ComparisonScorer(Scorer):
    """A judge decides by ``criteria`` whether the answer says what the reference says."""

    version: ClassVar[int] = 2
    criteria: ClassVar[tuple[str, ...]]

    @property
    def uses_judge(self) -> bool:
        return True

    def assess(self, record: EvalRecord, answer: Answer) -> Score | JudgeCall:
        return _undecidable(record, answer) or _ask_yes_or_no(record, answer, self.criteria)

    def read_verdict(self, record: EvalRecord, answer: Answer, call: JudgeCall, replies: list[str]) -> Score:
        read = read_reply(replies[0], YES_OR_NO)
        metadata = reply_metadata(call.metadata, replies[0], read)
        if read is None:
            return unreadable(metadata)
        return judged(record, answer, correct=read.value == "yes", metadata=metadata)


class FramesScorer(ComparisonScorer):
    """FRAMES: the answer holds the fact that the reference states."""

    scorer_id: ClassVar[str] = "frames"
    criteria: ClassVar[tuple[str, ...]] = (
        *_COMMON,
        "More detail than the reference asks for is no fault, as long as nothing contradicts the reference.",
    )


class HLEScorer(ComparisonScorer):
    """Humanity's Last Exam: the final answer is the reference."""

    scorer_id: ClassVar[str] = "hle"
    criteria: ClassVar[tuple[str, ...]] = (
        *_COMMON,
        "A number may differ from the reference by rounding only.",
        "Where the reference is a letter of a choice, that choice must be the one that is answered.",
    )


@dataclass(slots=True, frozen=True)
class ReasoningScorer(ComparisonScorer):
    """Right by rule where the final answer equals the reference as text, number or simple expression; else a judge.

    With ``judge = false`` what no rule finds right is wrong, or unread.
    """

    scorer_id: ClassVar[str] = "reasoning"

    judge: bool = True

    criteria: ClassVar[tuple[str, ...]] = (
        *_COMMON,
        "Expressions are the same where they are equal for every value of their variables.",
        "A number may differ from the reference by rounding only.",
    )

    @property
    def uses_judge(self) -> bool:
        return self.judge

    def assess(self, record: EvalRecord, answer: Answer) -> Score | JudgeCall:
        boxes = boxed_contents(record.reference)
        reference = (boxes[-1][1] if boxes else record.reference).strip()
        if (decided := _undecidable(record, answer)) is not None:
            return decided
        extraction = _equal_extraction(reference, answer)
        metadata = {"reference": shown(reference), "match_type": "exact"}
        if extraction is not None:
            return verdict(answer, extraction, lambda _: True, metadata)
        stated = extract_math(answer.text, explicit_only=answer.truncated)
        if not self.judge or (answer.truncated and stated.value is None):
            return verdict(answer, stated, lambda _: False, {"reference": shown(reference)})
        return _ask_yes_or_no(record, answer, self.criteria, match_type="llm_fallback")


_ATTEMPT = VerdictFormat(
    key="grade",
    values={"correct": (), "incorrect": (), "not_attempted": ()},
    texts={EXTRACTED: EXTRACTED_WANTED, "reasoning": "text, at most three sentences"},
    text_labels={EXTRACTED: EXTRACTED_LABELS},
)


@dataclass(slots=True, frozen=True)
class SimpleQAScorer(Scorer):
    """SimpleQA: correct, incorrect or not attempted.  Not attempted counts as wrong, and is counted apart.

    ``correct_given_attempted`` in the summary is the accuracy over the attempted questions.
    """

    scorer_id: ClassVar[str] = "simpleqa"
    version: ClassVar[int] = 2
    summary_rates: ClassVar[Mapping[str, str]] = {
        "not_attempted_rate": "not_attempted",
        "correct_given_attempted": "correct_given_attempted",
    }
    criteria: ClassVar[tuple[str, ...]] = (
        "The reference is right. Do not argue with it.",
        'Grade "correct" where the answer holds everything the reference states and contradicts none of it. '
        "More detail, another wording, a misspelt name that is clearly meant, and hedging are no fault.",
        'Grade "incorrect" where anything in the answer contradicts the reference, even if it is hedged.',
        'Grade "not_attempted" where the answer neither gives the reference nor contradicts it: it declines, '
        "does not know, or leaves the matter open.",
        "A number must agree with the reference to its last significant digit.",
    )

    @property
    def uses_judge(self) -> bool:
        return True

    def assess(self, record: EvalRecord, answer: Answer) -> Score | JudgeCall:
        if (decided := _undecidable(record, answer)) is not None:
            return decided
        whole = answer_text(answer)
        if not answer.truncated and _same_words(record.reference, whole):
            metadata = {"match_type": "exact", "grade": "correct", **_attempted("correct")}
            return verdict(answer, Extraction(whole, "whole_reply"), lambda _: True, metadata)
        prompt = comparison_prompt(
            record,
            answer,
            task="You grade an answer to a short factual question against the reference answer.",
            criteria=self.criteria,
            form=_ATTEMPT,
        )
        return JudgeCall((prompt,), {"match_type": "llm_fallback"})

    def read_verdict(self, record: EvalRecord, answer: Answer, call: JudgeCall, replies: list[str]) -> Score:
        read = read_reply(replies[0], _ATTEMPT)
        metadata = reply_metadata(call.metadata, replies[0], read)
        if read is None:
            return unreadable(metadata)
        metadata |= {"grade": read.value, **_attempted(read.value)}
        if read.value == "correct":
            return Score(Outcome.CORRECT, metadata=metadata)
        cut_off = read.value == "not_attempted" and answer.truncated
        return Score(Outcome.TRUNCATED if cut_off else Outcome.INCORRECT, metadata=metadata)


def _attempted(grade: str) -> dict[str, bool | None]:
    attempted = grade != "not_attempted"
    return {
        "not_attempted": not attempted,
        "correct_given_attempted": grade == "correct" if attempted else None,
    }


def _undecidable(record: EvalRecord, answer: Answer) -> Score | None:
    """What can be said before any comparison: nothing to compare with, or nothing to compare."""
    if not record.reference.strip():
        return unusable_reference(record.reference, "missing_reference")
    return empty_answer(answer)


def _ask_yes_or_no(
    record: EvalRecord, answer: Answer, criteria: tuple[str, ...], **metadata: str
) -> JudgeCall:
    prompt = comparison_prompt(record, answer, task=_TASK, criteria=criteria, form=YES_OR_NO)
    return JudgeCall((prompt,), dict(metadata))


def _equal_extraction(reference: str, answer: Answer) -> Extraction | None:
    """What the answer gives that equals the reference, read as mathematics or as text."""
    for extraction in (
        extract_math(answer.text, explicit_only=answer.truncated),
        extract_stated(answer.text, explicit_only=answer.truncated),
    ):
        value = extraction.value
        if value is not None and (quick_match(reference, value) is True or _same_words(reference, value)):
            return extraction
    return None


def _same_words(reference: str, text: str) -> bool:
    """Equal as words: case, articles and the marks around them aside."""
    if len(text) > 20 * len(reference) + 1_000:
        return False
    left, right = (normalize_text(words, ignore_articles=True) for words in (reference, text))
    return bool(left) and left == right
