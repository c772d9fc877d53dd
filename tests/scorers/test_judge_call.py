"""What becomes of a sample whose judge is missing or fails: never right, never wrong by that."""

from __future__ import annotations

from typing import Any

import pytest

from evalray.scorers import Answer, JudgeCall, build_scorer
from evalray.types import EvalRecord, Outcome

RECORD = EvalRecord("r", "Q?", "17000", "chat", metadata={"options": ["x", "17000"]})
ANSWER = Answer("17 thousand, more or less", "stop")
FAILURE = "400: max_tokens must be an integer, GRADE: correct"


@pytest.mark.parametrize(
    ("name", "args", "without_judge", "after_failure"),
    [
        ("mcq", {"judge": True}, Outcome.UNPARSED, Outcome.JUDGE_ERROR),
        ("gaia", {}, Outcome.INCORRECT, Outcome.INCORRECT),
        ("gaia", {"headline": "seed"}, Outcome.JUDGE_ERROR, Outcome.JUDGE_ERROR),
        ("frames", {}, Outcome.JUDGE_ERROR, Outcome.JUDGE_ERROR),
        ("hle", {}, Outcome.JUDGE_ERROR, Outcome.JUDGE_ERROR),
        ("simpleqa", {}, Outcome.JUDGE_ERROR, Outcome.JUDGE_ERROR),
        ("reasoning", {}, Outcome.JUDGE_ERROR, Outcome.JUDGE_ERROR),
        ("wildchat", {}, Outcome.JUDGE_ERROR, Outcome.JUDGE_ERROR),
    ],
)
def test_without_a_judge_and_after_its_failure(
    name: str, args: dict[str, Any], without_judge: Outcome, after_failure: Outcome
) -> None:
    scorer = build_scorer(name, args)
    call = scorer.assess(RECORD, ANSWER)
    assert isinstance(call, JudgeCall)
    assert call.without_judge().outcome is without_judge
    assert (without_judge is Outcome.JUDGE_ERROR) is scorer.needs_judge
    failed = call.after_failure(FAILURE)
    assert failed.outcome is after_failure
    assert FAILURE in failed.metadata.values()
    assert scorer.stored_replies(failed.metadata) is None


def test_a_failure_does_not_change_the_score_that_stands_without_a_judge() -> None:
    call = build_scorer("gaia").assess(RECORD, ANSWER)
    assert isinstance(call, JudgeCall)
    before = dict(call.without_judge().metadata)
    call.after_failure(FAILURE)
    assert call.without_judge().metadata == before
