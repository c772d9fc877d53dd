from __future__ import annotations

from typing import Any, Protocol

import pytest

from evalray.scorers import Answer, JudgeCall, Scorer
from evalray.types import EvalRecord, Score


class RecordFactory(Protocol):
    def __call__(self, reference: str, **metadata: Any) -> EvalRecord: ...


class Judging(Protocol):
    def __call__(
        self, scorer: Scorer, record: EvalRecord, text: str, *replies: str, finish_reason: str = "stop"
    ) -> Score: ...


@pytest.fixture
def judging() -> Judging:
    """Score one answer with what a judge replies; fails unless exactly the given replies are asked for."""

    def run(
        scorer: Scorer, record: EvalRecord, text: str, *replies: str, finish_reason: str = "stop"
    ) -> Score:
        answer = Answer(text, finish_reason)
        result = scorer.assess(record, answer)
        if isinstance(result, Score):
            assert not replies, f"decided without the judge: {result}"
            return result
        assert isinstance(result, JudgeCall)
        assert len(result.prompts) == len(replies)
        # A resumed or re-scored run makes the call anew; the verdict must not depend on the first one.
        again = scorer.assess(record, answer)
        assert again == result
        score = scorer.read_verdict(record, answer, result, list(replies))
        stored = scorer.stored_replies(score.metadata)
        assert stored == list(replies)
        assert scorer.read_verdict(record, answer, again, stored) == score
        return score

    return run


@pytest.fixture
def record() -> RecordFactory:
    """A record with a reference and metadata."""

    def make(reference: str, **metadata: Any) -> EvalRecord:
        return EvalRecord("r1", "What?", reference, "reasoning", metadata=metadata)

    return make
