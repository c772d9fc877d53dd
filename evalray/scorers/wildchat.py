"""WildChat: the model's answer against the recorded one, judged in both orders.

A judge may favour whatever comes first.  Each answer is therefore shown once as A and once as B,
and how often the preference followed the position is part of the summary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from evalray.judges import JudgePrompt, VerdictFormat, judge_prompt, read_reply
from evalray.scorers.base import Answer, JudgeCall, Scorer
from evalray.scorers.judged import answer_text, empty_answer, unreadable
from evalray.scorers.verdict import unusable_reference
from evalray.types import EvalRecord, Outcome, Score

#: How much better A is than B, by verdict.
_PREFERENCE = {"A>>B": 2, "A>B": 1, "A=B": 0, "B>A": -1, "B>>A": -2}
_COMPARISON = VerdictFormat(
    key="verdict",
    values=dict.fromkeys(_PREFERENCE, ()),
    texts={"reasoning": "text, at most five sentences"},
    style="brackets",
)
_TASK = "You compare two assistants' replies to the same user message and decide which one serves the user better."
_CRITERIA = (
    "First think of what a good reply to this message would be, then compare both replies with that.",
    "What counts: correct, complete, relevant, clear, no longer than it needs to be. For a creative or "
    "subjective message: quality and fit with what was asked.",
    "Neither the order nor the length of the replies counts by itself.",
    "A>>B: A is much better. A>B: A is somewhat better. A=B: about the same. B>A and B>>A: likewise for B.",
)
_MAX_REPLY_CHARS = 20_000


@dataclass(slots=True, frozen=True)
class WildChatScorer(Scorer):
    """Right where the model's answer wins or ties.

    ``headline = "seed"``: in either order, as OpenJarvis counts it (a judge that always prefers A
    then finds every answer right).  ``headline = "strict"``: in both orders.  Both are in the
    metadata and in the summary, with the rate of samples whose preference followed the position.
    """

    scorer_id: ClassVar[str] = "wildchat"
    summary_rates: ClassVar[Mapping[str, str]] = {
        "win_or_tie_either_order": "win_or_tie_either",
        "win_or_tie_both_orders": "win_or_tie_both",
        "position_bias_rate": "position_flip",
        "order_consistency_rate": "order_consistent",
    }

    headline: Literal["seed", "strict"] = "seed"

    @property
    def uses_judge(self) -> bool:
        return True

    def assess(self, record: EvalRecord, answer: Answer) -> Score | JudgeCall:
        if not record.reference.strip():
            return unusable_reference(record.reference, "missing_reference")
        if (decided := empty_answer(answer)) is not None:
            return decided
        ours, theirs = answer_text(answer), record.reference
        return JudgeCall((_prompt(record, ours, theirs), _prompt(record, theirs, ours)))

    def read_verdict(self, record: EvalRecord, answer: Answer, call: JudgeCall, replies: list[str]) -> Score:
        verdicts = [read_reply(reply, _COMPARISON) for reply in replies]
        passes = [
            {"verdict": None if read is None else read.value, "response": reply[:_MAX_REPLY_CHARS]}
            for read, reply in zip(verdicts, replies, strict=True)
        ]
        metadata: dict[str, Any] = {"generated_as_a": passes[0], "generated_as_b": passes[1]}
        as_a, as_b = verdicts
        if as_a is None or as_b is None:
            return unreadable(metadata)
        metadata |= compare_orders(as_a.value, as_b.value)
        right = metadata["win_or_tie_either" if self.headline == "seed" else "win_or_tie_both"]
        return Score(Outcome.CORRECT if right else Outcome.INCORRECT, metadata=metadata)

    def stored_replies(self, metadata: Mapping[str, Any]) -> list[str] | None:
        passes = [metadata.get(key) for key in ("generated_as_a", "generated_as_b")]
        replies = [one.get("response") if isinstance(one, dict) else None for one in passes]
        return [str(reply) for reply in replies] if None not in replies else None


def compare_orders(as_a: str, as_b: str) -> dict[str, bool | str | None]:
    """What the verdicts of the two orders say together; the model was A in the first, B in the second.

    ``position_flip``: the same *position* was preferred both times, ``favoured_position`` which.
    ``order_consistent``: the same *answer* was preferred, or none, both times.
    """
    first, second = _PREFERENCE[as_a], -_PREFERENCE[as_b]
    flip = first * second < 0
    favoured = ("A" if first > 0 else "B") if flip else None
    return {
        "win_or_tie_either": first >= 0 or second >= 0,
        "win_or_tie_both": first >= 0 and second >= 0,
        "position_flip": flip,
        "favoured_position": favoured,
        "order_consistent": (first > 0) == (second > 0) and (first < 0) == (second < 0),
    }


def _prompt(record: EvalRecord, reply_a: str, reply_b: str) -> JudgePrompt:
    pieces = {"message": record.problem, "reply_a": reply_a, "reply_b": reply_b}
    return judge_prompt(task=_TASK, pieces=pieces, criteria=_CRITERIA, form=_COMPARISON)
