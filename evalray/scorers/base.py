"""What a scorer is: a rule first, a judge only where no rule decides.

A scorer is built once per run, before any engine starts, so that one that cannot be built stops
the run before it costs anything.  :meth:`Scorer.assess` sees the record and what the model
answered.  It either decides (:class:`~evalray.types.Score`) or asks a judge
(:class:`JudgeCall`), whose replies come back through :meth:`Scorer.read_verdict`.  Scorers do no I/O.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from evalray.judges import JudgePrompt
from evalray.types import EvalRecord, Outcome, Score


@dataclass(slots=True, frozen=True)
class Answer:
    """What a scorer may look at: the answer without its reasoning, and how it ended."""

    text: str
    finish_reason: str | None = None

    @property
    def truncated(self) -> bool:
        """Stopped by the token limit: then only an explicit answer marker counts."""
        return self.finish_reason == "length"


@dataclass(slots=True, frozen=True)
class JudgeCall:
    """Questions to put to the judge before this sample can be scored.

    ``unjudged`` stands where no judge is configured; without it the sample is then ``judge_error``.
    ``decided`` says that it stands too where the judge's call fails: the rules have the outcome, and
    the judge's opinion is only kept beside it.
    """

    prompts: tuple[JudgePrompt, ...]
    metadata: dict[str, Any] = field(default_factory=dict)
    unjudged: Score | None = None
    decided: bool = False

    def without_judge(self) -> Score:
        """The score where no judge is configured."""
        if self.unjudged is not None:
            return self.unjudged
        return Score(Outcome.JUDGE_ERROR, metadata={**self.metadata, "reason": "no judge configured"})

    def after_failure(self, error: str) -> Score:
        """The score where the judge's call failed; ``error`` is kept and never read as a reply."""
        if self.decided and self.unjudged is not None:
            kept = {**self.unjudged.metadata, "judge_failure": error}
            return Score(self.unjudged.outcome, self.unjudged.score, kept)
        metadata = {**self.metadata, "reason": "judge_failed", "error": error}
        return Score(Outcome.JUDGE_ERROR, metadata=metadata)


class Scorer(ABC):
    """Compares an answer with a record's reference.

    Implement :meth:`score` for a plain yes or no (OpenJarvis's signature), or :meth:`assess` where
    the outcome is finer than that.
    """

    scorer_id: ClassVar[str]
    #: Raised when the rules change, so that stored generations are scored again.
    version: ClassVar[int] = 1
    #: Runs in a killable subprocess with a wall clock: for libraries that can hang.
    isolated: ClassVar[bool] = False
    #: Calls its judge itself, by a backend given to its constructor, and so blocks: run it in a thread.
    needs_backend: ClassVar[bool] = False
    #: Rates for the summary: name to the metadata key whose true values are counted, over those
    #: samples in which it is true or false.
    summary_rates: ClassVar[Mapping[str, str]] = {}

    @property
    def uses_judge(self) -> bool:
        """Whether a judge may be asked, with this scorer's arguments.  A subclass may set a plain bool."""
        return False

    @property
    def needs_judge(self) -> bool:
        """Whether samples stay unscored (``judge_error``) where no judge is configured."""
        return self.uses_judge

    def score(self, record: EvalRecord, model_answer: str) -> tuple[bool | None, dict[str, Any]]:
        """``(is_correct, metadata)``; ``None`` means no verdict could be reached."""
        raise NotImplementedError(f"{type(self).__name__} implements neither score nor assess")

    def assess(self, record: EvalRecord, answer: Answer) -> Score | JudgeCall:
        """The verdict on one answer, or what to ask the judge."""
        correct, metadata = self.score(record, answer.text)
        if isinstance(correct, str | bytes) or correct not in (True, False, None):
            raise TypeError(f"score returned {correct!r:.100}, which is not true, false or None")
        if correct is None:
            outcome = Outcome.TRUNCATED if answer.truncated else Outcome.UNPARSED
        else:
            outcome = Outcome.CORRECT if correct else Outcome.INCORRECT
        return Score(outcome, metadata=metadata)

    def warm_up(self) -> None:  # noqa: B027  (optional, not abstract)
        """Load what is slow to load; called once in the process that assesses, outside its time limit."""

    def shortcut(self, record: EvalRecord, answer: Answer) -> Score | None:
        """The verdict where it is cheap and certain.  Asked in the calling process before an isolated
        scorer's worker; ``None`` leaves the sample to :meth:`assess`."""
        return None

    def read_verdict(self, record: EvalRecord, answer: Answer, call: JudgeCall, replies: list[str]) -> Score:
        """The verdict from the judge's replies, one per prompt of ``call``, reasoning removed.

        A reply that cannot be read is ``judge_error``, never right and never wrong.
        """
        raise NotImplementedError(f"{type(self).__name__} asks no judge")

    def stored_replies(self, metadata: Mapping[str, Any]) -> list[str] | None:
        """The judge's replies as an earlier score's metadata keeps them, for reading them again.

        ``None`` where it holds none.  As many as prompts, or they belong to another call.
        """
        reply = metadata.get("raw_judge_output")
        return [reply] if isinstance(reply, str) else None
