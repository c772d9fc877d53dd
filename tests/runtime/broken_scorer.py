"""A scorer with a fault, for tests."""

from __future__ import annotations

from typing import Any, ClassVar

from evalray.scorers import Scorer
from evalray.types import EvalRecord


class BrokenScorer(Scorer):
    scorer_id: ClassVar[str] = "broken"

    def score(self, record: EvalRecord, model_answer: str) -> tuple[bool | None, dict[str, Any]]:
        raise KeyError("a fault of the scorer")
