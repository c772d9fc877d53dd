"""GAIA: the leaderboard's rule, a reading as a human would have it, and a judge's opinion.

The official rule gives the headline, so that it can be compared with published figures, quirks
included (``17,000`` as reference is a list, ``inf`` matches any text).  The human reading and, where
the rule finds no match, the judge's verdict stand beside it for every sample.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal

from evalray.judges import read_reply
from evalray.scorers.base import Answer, JudgeCall, Scorer
from evalray.scorers.exact import extract_stated
from evalray.scorers.judged import (
    YES_OR_NO,
    answer_text,
    comparison_prompt,
    empty_answer,
    judged,
    reply_metadata,
    unreadable,
)
from evalray.scorers.number import parse_number, unit_words
from evalray.scorers.text import Extraction, last_match, normalize_text
from evalray.scorers.verdict import shown, unusable_reference
from evalray.types import EvalRecord, Outcome, Score
from evalray.untrusted import strip_invisible

_MARKER = re.compile(r"(?<![a-z])final[ _]answer[*_`]{0,3}[ \t]?:", re.IGNORECASE)
_DECORATION = " \t*`_"


def extract_final_answer(text: str) -> Extraction:
    """The rest of the line after the last ``FINAL ANSWER:`` (or the next line, if nothing is left), else all.

    ``rule`` is ``final_answer``, ``final_answer_unfinished`` where the text ends with that line, or
    ``whole_reply``.
    """
    marker = last_match(_MARKER, text)
    if marker is not None:
        rest = text[marker.end() :]
        lines = rest.splitlines(keepends=True)
        for index, line in enumerate(lines):
            value = line.strip().strip(_DECORATION)
            if value:
                unfinished = index == len(lines) - 1 and not line.endswith(("\n", "\r"))
                return Extraction(value, "final_answer_unfinished" if unfinished else "final_answer")
    return Extraction(text.strip(), "whole_reply")


def exact_match(model_answer: str, gold: str) -> bool:
    """The published rule on an answer from which ``FINAL ANSWER:`` is stripped already.

    A reference that parses as a float is compared as one, with ``$ % ,`` dropped from the answer and
    infinity for what then is no number; a reference with ``,`` or ``;`` as a list, in order; any
    other as lower-case text without white space and ASCII punctuation.
    """
    if _is_float(gold):
        return _official_number(model_answer) == float(gold)
    if "," in gold or ";" in gold:
        golds, given = re.split("[,;]", gold), re.split("[,;]", model_answer)
        if len(golds) != len(given):
            return False
        return all(
            _official_number(ours) == float(theirs)
            if _is_float(theirs)
            else _without_space(ours) == _without_space(theirs)
            for ours, theirs in zip(given, golds, strict=True)
        )
    table = str.maketrans("", "", string.punctuation)
    return _without_space(model_answer).translate(table) == _without_space(gold).translate(table)


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _official_number(text: str) -> float:
    for mark in "$%,":
        text = text.replace(mark, "")
    return float(text) if _is_float(text) else float("inf")


def _without_space(text: str) -> str:
    return re.sub(r"\s", "", text).lower()


_MAX_HUMAN_CHARS = 2_000
_THOUSANDS_AWARE = re.compile(r"[;,](?!(?<=\d,)\d{3}(?!\d))")
_ANY_SEPARATOR = re.compile(r"[;,]")
_INFINITE = frozenset({"inf", "infinity", "\u221e", "infinite"})


def human_match(model_answer: str, gold: str) -> bool:
    """Whether a human reader would take the answer for the reference.

    Numbers are compared by value (thousands separators, scale words, fractions, the minus sign;
    ``%`` is a hundredth), and may carry a unit that the reference leaves out.  Lists are compared
    item by item, in order.  Text is compared in canonical Unicode, without case, articles,
    punctuation and blanks.
    """
    model_answer, gold = _readable(model_answer), _readable(gold)
    if not gold or not model_answer or len(model_answer) > _MAX_HUMAN_CHARS + len(gold):
        return False
    stated = extract_stated(model_answer).value or model_answer
    gold_is_one = _ANY_SEPARATOR.search(gold) is None or parse_number(gold) is not None
    return any(
        (gold_is_one and _same_item(text, gold))
        or any(_same_list(text, gold, separator) for separator in (_THOUSANDS_AWARE, _ANY_SEPARATOR))
        for text in dict.fromkeys((model_answer, stated))
    )


def _readable(text: str) -> str:
    text = strip_invisible(unicodedata.normalize("NFKC", text))
    return " ".join(text.replace("\N{MINUS SIGN}", "-").replace("\N{FRACTION SLASH}", "/").split())


def _same_list(answer: str, gold: str, separator: re.Pattern[str]) -> bool:
    golds, given = separator.split(gold.strip("[]() ")), separator.split(answer.strip("[](). "))
    return (
        len(golds) > 1
        and len(golds) == len(given)
        and all(
            _same_item(_without_and(ours), _without_and(theirs))
            for ours, theirs in zip(given, golds, strict=True)
        )
    )


def _without_and(item: str) -> str:
    return item.strip().removeprefix("and ").strip()


@dataclass(slots=True, frozen=True)
class _Quantity:
    value: Fraction
    is_percent: bool
    unit: str


def _same_item(answer: str, gold: str) -> bool:
    theirs = _quantity(gold)
    if theirs is None:
        if " ".join(_words(gold)) in _INFINITE:
            return " ".join(_words(answer)) in _INFINITE
        return _same_text(answer, gold)
    ours = _quantity(answer)
    if ours is None or (theirs.unit and ours.unit != theirs.unit):
        return False
    if theirs.is_percent and not ours.is_percent:
        return ours.value == theirs.value or ours.value == theirs.value / 100
    if ours.is_percent and not theirs.is_percent:
        return ours.value / 100 == theirs.value
    return ours.value == theirs.value


def _same_text(left: str, right: str) -> bool:
    ours, theirs = _words(left), _words(right)
    if not ours or not theirs:
        return left == right
    # "e-mail" is "email" and "helloworld" "hello world", but "3-2" is not "32".
    joined = "".join(ours), "".join(theirs)
    return ours == theirs or (joined[0] == joined[1] and not any(map(str.isdigit, joined[0])))


def _words(text: str) -> list[str]:
    words = re.findall(r"[^\W_]+|[+\u221e]", normalize_text(text))
    return words[1:] if len(words) > 1 and words[0] in ("a", "an", "the") else words


def _quantity(text: str) -> _Quantity | None:
    """A number with at most a few words of unit; ``None`` for anything else."""
    value, words = parse_number(text), unit_words(text)
    if value is None or words is None:
        return None
    unit = " ".join(word for word in words if word != "percent")
    return _Quantity(value, "%" in text or "percent" in words, unit)


@dataclass(slots=True, frozen=True)
class GAIAScorer(Scorer):
    """The official rule, the human reading, and a judge where the rule finds no match.

    ``headline = "official"``: the outcome is the rule's, and the judge's verdict is kept beside it.
    ``headline = "seed"`` is OpenJarvis's: right by rule or by the judge.  ``judge = false`` asks none.
    """

    scorer_id: ClassVar[str] = "gaia"
    version: ClassVar[int] = 2
    summary_rates: ClassVar[Mapping[str, str]] = {
        "gaia_official": "gaia_official",
        "gaia_human": "gaia_human",
        "gaia_with_judge": "gaia_with_judge",
    }
    criteria: ClassVar[tuple[str, ...]] = (
        "The reference is right. Do not solve the question yourself and do not argue with the reference.",
        "Judge the final answer only, by its meaning: format, units that the question implies, "
        "abbreviations and articles are no difference.",
        "Numbers must be equal, and lists must hold the same items, in the same order where the question asks for one.",
        "An answer that gives several different final answers, or none, is not right.",
    )

    judge: bool = True
    headline: Literal["official", "seed"] = "official"

    @property
    def uses_judge(self) -> bool:
        return self.judge

    @property
    def needs_judge(self) -> bool:
        return self.judge and self.headline == "seed"

    def assess(self, record: EvalRecord, answer: Answer) -> Score | JudgeCall:
        gold = record.reference
        if not gold.strip():
            return unusable_reference(gold, "missing_reference")
        final = extract_final_answer(answer_text(answer))
        text = final.value or ""
        official = exact_match(text, gold)
        metadata: dict[str, Any] = {
            "extracted": shown(text),
            "rule": final.rule,
            "gaia_official": official,
            "gaia_human": human_match(text, gold),
            "gaia_with_judge": official,
        }
        if (decided := empty_answer(answer, metadata)) is not None:
            return decided
        if answer.truncated and final.rule != "final_answer":
            return Score(Outcome.TRUNCATED, metadata=metadata)
        if official:
            return Score(Outcome.CORRECT, metadata={**metadata, "match_type": "exact"})
        unjudged = Score(Outcome.INCORRECT, metadata={**metadata, "gaia_with_judge": None})
        if not self.judge:
            return unjudged
        prompt = comparison_prompt(
            record,
            answer,
            task="You decide whether an answer to a question gives the same final answer as the reference.",
            criteria=self.criteria,
            form=YES_OR_NO,
        )
        decided_by_rule = self.headline == "official"
        return JudgeCall((prompt,), metadata, unjudged if decided_by_rule else None, decided_by_rule)

    def read_verdict(self, record: EvalRecord, answer: Answer, call: JudgeCall, replies: list[str]) -> Score:
        read = read_reply(replies[0], YES_OR_NO)
        metadata = reply_metadata({**call.metadata, "match_type": "llm_fallback"}, replies[0], read)
        metadata["gaia_with_judge"] = None if read is None else read.value == "yes"
        failed = unreadable(metadata)
        if self.headline == "official":
            return Score(Outcome.INCORRECT, metadata=failed.metadata if read is None else metadata)
        if read is None:
            return failed
        return judged(record, answer, correct=read.value == "yes", metadata=metadata)
