"""Judge scorers of one's own, in OpenJarvis's form: ask the judge from within ``score``.

Scorers that ask through :class:`~evalray.scorers.base.JudgeCall` keep many judge calls in flight;
this form holds a thread for each call and is for code that is there already.
"""

from __future__ import annotations

import threading
from typing import Any, ClassVar, NoReturn

from evalray.backend import InferenceBackend
from evalray.errors import JudgeError
from evalray.scorers.base import Answer, Scorer
from evalray.scorers.judged import empty_answer
from evalray.scorers.verdict import shown
from evalray.types import EvalRecord, Outcome, Score

NO_JUDGE = "no judge is configured: give judge_model in [judge] or with --judge-model"


class LLMJudgeScorer(Scorer):
    """Subclass it, give it a ``scorer_id`` and write ``score``, which may call :meth:`_ask_judge`.

    ``score`` runs in threads, for several samples at once.  A judge call that failed makes the
    sample ``judge_error``, even if ``score`` caught the exception and returned a verdict; so does a
    verdict of ``None``.  An answer without text is not judged.
    """

    needs_backend: ClassVar[bool] = True
    uses_judge = True

    def __init__(self, judge_backend: InferenceBackend, judge_model: str) -> None:
        self._judge_backend = judge_backend
        self._judge_model = judge_model
        self._failure = threading.local()

    def _ask_judge(
        self, prompt: str, *, system: str = "", temperature: float = 0.0, max_tokens: int = 1024
    ) -> str:
        """The judge's reply.  Raises whatever the backend raises."""
        try:
            reply = self._judge_backend.generate(
                prompt,
                model=self._judge_model,
                system=system,
                temperature=temperature,
                max_tokens=max_tokens,
            )
        except Exception as error:
            self._failure.error = error
            raise
        self._failure.error = None
        return reply

    def assess(self, record: EvalRecord, answer: Answer) -> Score:
        if (decided := empty_answer(answer)) is not None:
            return decided
        self._failure.error = None
        try:
            correct, metadata = self.score(record, answer.text)
        except Exception as error:
            if self._failure.error is None:
                raise
            return _judge_failed(error, {})
        if self._failure.error is not None:
            return _judge_failed(self._failure.error, metadata)
        if correct is None:
            return Score(Outcome.JUDGE_ERROR, metadata={"reason": "undetermined", **metadata})
        return Score(Outcome.CORRECT if correct else Outcome.INCORRECT, metadata=metadata)


def _judge_failed(error: Exception, metadata: dict[str, Any]) -> Score:
    message = shown(f"{type(error).__name__}: {error}")
    return Score(Outcome.JUDGE_ERROR, metadata={**metadata, "reason": "judge_failed", "error": message})


class NoJudgeBackend(InferenceBackend):
    """Stands in where no judge is configured: every call fails and says so."""

    backend_id = "none"

    def generate(
        self, prompt: str, *, model: str, system: str = "", temperature: float = 0.0, max_tokens: int = 2048
    ) -> NoReturn:
        raise JudgeError(NO_JUDGE)

    def generate_full(
        self, prompt: str, *, model: str, system: str = "", temperature: float = 0.0, max_tokens: int = 2048
    ) -> NoReturn:
        raise JudgeError(NO_JUDGE)
