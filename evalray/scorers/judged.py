"""What judge-backed scorers share: when to ask, how yes and no are asked for, what a reply becomes.

A reply that cannot be read is ``judge_error`` with the reply kept.  An empty answer is never sent
to a judge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evalray.judges import JudgePrompt, Verdict, VerdictFormat, judge_prompt
from evalray.scorers.base import Answer
from evalray.scorers.text import normalize_text
from evalray.types import EvalRecord, Outcome, Score
from evalray.untrusted import without_reasoning

#: Reason in the metadata of a ``judge_error`` whose verdict could not be read.
GRADE_PARSE_FAILURE = "grade_parse_failure"
#: What is kept of a judge's reply, in characters: more than a judge may write by default.
_MAX_REPLY_CHARS = 20_000

EXTRACTED = "extracted_answer"
EXTRACTED_WANTED = "text, the final answer that the answer gives, or none if it gives no final answer"
#: Names of that key in replies that other harnesses asked for.
EXTRACTED_LABELS = ("extracted_final_answer",)
_NO_ANSWER = frozenset({"", "none", "null", "n/a"})

#: Is the answer right?  Also the form of OpenJarvis's stored judge replies.
YES_OR_NO = VerdictFormat(
    key="correct",
    values={"yes": ("true", "correct"), "no": ("false", "incorrect")},
    texts={EXTRACTED: EXTRACTED_WANTED, "reasoning": "text, at most three sentences"},
    text_labels={EXTRACTED: EXTRACTED_LABELS},
)


def answer_text(answer: Answer) -> str:
    return without_reasoning(answer.text).strip()


def empty_answer(answer: Answer, metadata: Mapping[str, Any] | None = None) -> Score | None:
    """The score of an answer without any text; ``None`` if it has some."""
    if answer_text(answer):
        return None
    outcome = Outcome.TRUNCATED if answer.truncated else Outcome.UNPARSED
    return Score(outcome, metadata={**(metadata or {}), "reason": "empty_response"})


def comparison_prompt(
    record: EvalRecord, answer: Answer, *, task: str, criteria: Sequence[str], form: VerdictFormat
) -> JudgePrompt:
    """Question, reference and answer, to be compared."""
    pieces = {"question": record.problem, "reference": record.reference, "answer": answer_text(answer)}
    return judge_prompt(task=task, pieces=pieces, criteria=criteria, form=form)


def reply_metadata(metadata: Mapping[str, Any], reply: str, read: Verdict | None) -> dict[str, Any]:
    """``metadata`` with the judge's reply and what it says it read from the answer."""
    found = {**metadata, "raw_judge_output": reply[:_MAX_REPLY_CHARS]}
    if read is not None and EXTRACTED in read.texts:
        found["extracted_answer"] = read.texts[EXTRACTED]
    return found


def unreadable(metadata: Mapping[str, Any]) -> Score:
    return Score(Outcome.JUDGE_ERROR, metadata={**metadata, "reason": GRADE_PARSE_FAILURE})


def judged(record: EvalRecord, answer: Answer, *, correct: bool, metadata: dict[str, Any]) -> Score:
    """The score after a verdict.  Where the judge found no final answer, that is what it counts as."""
    if correct:
        return Score(Outcome.CORRECT, metadata=metadata)
    extracted = metadata.get("extracted_answer")
    if (
        isinstance(extracted, str)
        and normalize_text(extracted) in _NO_ANSWER
        and normalize_text(record.reference) not in _NO_ANSWER
    ):
        metadata = {**metadata, "reason": "no_final_answer"}
        return Score(Outcome.TRUNCATED if answer.truncated else Outcome.UNPARSED, metadata=metadata)
    return Score(Outcome.INCORRECT, metadata=metadata)
