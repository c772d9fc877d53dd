"""Scorers with faults, for tests."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

from evalray.scorers import Answer, Scorer
from evalray.types import EvalRecord


class BrokenScorer(Scorer):
    scorer_id: ClassVar[str] = "broken"

    def score(self, record: EvalRecord, model_answer: str) -> tuple[bool | None, dict[str, Any]]:
        raise KeyError("a fault of the scorer")


class _Odd(Scorer):
    def assess(self, record: EvalRecord, answer: Answer) -> Any:
        return self.decide(answer)

    def decide(self, answer: Answer) -> Any:
        raise NotImplementedError


class JunkScorer(_Odd):
    scorer_id: ClassVar[str] = "junk"

    def decide(self, answer: Answer) -> Any:
        return "correct"


class ForgetfulScorer(_Odd):
    scorer_id: ClassVar[str] = "forgetful"

    def decide(self, answer: Answer) -> Any:
        return None


class LeavingScorer(_Odd):
    scorer_id: ClassVar[str] = "leaving"

    def decide(self, answer: Answer) -> Any:
        sys.exit(0)


class MuteError(Exception):
    def __str__(self) -> str:
        raise ValueError


class MuteScorer(_Odd):
    scorer_id: ClassVar[str] = "mute"

    def decide(self, answer: Answer) -> Any:
        raise MuteError


class WordScorer(Scorer):
    scorer_id: ClassVar[str] = "word"

    def score(self, record: EvalRecord, model_answer: str) -> Any:
        return "no", {}


class BlockingLeavingScorer(LeavingScorer):
    scorer_id: ClassVar[str] = "blocking-leaving"
    needs_backend: ClassVar[bool] = True

    def __init__(self, judge_backend: Any, judge_model: str) -> None:
        pass


class UnbuildableScorer(_Odd):
    scorer_id: ClassVar[str] = "unbuildable"

    def __init__(self) -> None:
        sys.exit(0)
