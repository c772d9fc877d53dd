"""A judge scorer in OpenJarvis's form, found as ``runtime.own_judge:OwnJudge``."""

from __future__ import annotations

from typing import Any

from evalray.scorers import LLMJudgeScorer
from evalray.types import EvalRecord


class OwnJudge(LLMJudgeScorer):
    scorer_id = "own-judge"

    def score(self, record: EvalRecord, model_answer: str) -> tuple[bool | None, dict[str, Any]]:
        reply = self._ask_judge(f"{record.problem}\n{model_answer}", system="Be fair.")
        return '"yes"' in reply, {"raw_judge_output": reply}
