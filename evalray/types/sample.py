"""One sample on its way: the record, the request made of it, what came back, and the verdict on that."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from evalray.types.config import SamplingParams


class Outcome(StrEnum):
    """How one sample ended.  Exactly one per sample; each is counted beside the score."""

    CORRECT = "correct"
    INCORRECT = "incorrect"
    UNPARSED = "unparsed"
    """The model answered, and no answer could be read from it.  Counts as wrong."""
    TRUNCATED = "truncated"
    """Stopped by the token limit before an explicit answer.  Counts as wrong."""
    JUDGE_ERROR = "judge_error"
    """The judge failed, or its verdict could not be read.  Not graded; re-judged on resume."""
    SCORER_ERROR = "scorer_error"
    """Our scorer raised or ran out of time.  Not graded."""
    ENGINE_ERROR = "engine_error"
    """The request failed after its retries.  Not graded; retried on resume."""
    SKIPPED = "skipped"
    """Not attempted: interrupted, circuit breaker, missing file, budget."""

    @property
    def is_correct(self) -> bool | None:
        """The seed's ``is_correct``: true, false, or ``None`` where nothing was graded."""
        return _IS_CORRECT[self]

    @property
    def is_scored(self) -> bool:
        """Whether the sample is in the denominator of the accuracy."""
        return _IS_CORRECT[self] is not None


_IS_CORRECT: dict[Outcome, bool | None] = {
    Outcome.CORRECT: True,
    Outcome.INCORRECT: False,
    Outcome.UNPARSED: False,
    Outcome.TRUNCATED: False,
    Outcome.JUDGE_ERROR: None,
    Outcome.SCORER_ERROR: None,
    Outcome.ENGINE_ERROR: None,
    Outcome.SKIPPED: None,
}


@dataclass(slots=True)
class EvalRecord:
    """One benchmark sample.

    ``record_id`` is stable: the dataset's own id or a hash of the content, never a position.
    ``problem`` is the rendered user prompt; ``reference`` the gold answer the scorer compares with.
    """

    record_id: str
    problem: str
    reference: str
    category: str
    subject: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class GenerationRequest:
    """One request to an engine: chat messages (``{"role", "content"}``) and how to sample.

    ``request_id`` is unique within a deployment.  ``timeout_seconds`` bounds one attempt, from
    the moment it is sent to its last token.
    """

    request_id: str
    messages: tuple[dict[str, str], ...]
    sampling: SamplingParams
    timeout_seconds: float = 600.0
    response_schema: dict[str, Any] | None = None
    """JSON schema of the reply, for engines whose server can enforce one; the others leave it out."""


@dataclass(slots=True)
class Timeline:
    """When things happened to one request, of the attempt that counted.

    ``*_at`` are Unix seconds on the engine's node; ``*_seconds`` are differences of that node's
    monotonic clock.  Inter-token figures are over the gaps between streamed chunks that carried
    text; they and ``ttft_seconds`` are ``None`` where the reply was not streamed.
    """

    queued_at: float | None = None
    """When the engine actor took the request in."""
    sent_at: float | None = None
    """When this attempt was handed to the engine."""
    sent_monotonic: float | None = None
    """The same moment on the node's monotonic clock, which no time server moves."""
    completed_at: float | None = None
    queue_seconds: float | None = None
    """queued to sent, retries and back-off included."""
    latency_seconds: float | None = None
    """sent to last token."""
    ttft_seconds: float | None = None
    """sent to first token, of reasoning or of answer."""
    decode_seconds: float | None = None
    """first token to last token."""
    itl_mean_seconds: float | None = None
    itl_p50_seconds: float | None = None
    itl_p90_seconds: float | None = None
    itl_p99_seconds: float | None = None
    itl_max_seconds: float | None = None
    server: dict[str, float] | None = None
    """Timings the engine reports of itself, by its own names, where it does."""


@dataclass(slots=True)
class Generation:
    """What an engine returned for one (record, epoch, attempt).

    Either ``error`` is ``None`` and the text fields hold the reply, or ``error`` says what went
    wrong and ``error_kind`` classifies it (one of :data:`evalray.errors.ErrorKind`); the text
    fields are then whatever had arrived and are never scored.
    """

    raw_text: str = ""
    """Everything the model wrote, reasoning included, as it came."""
    model_answer: str = ""
    """``raw_text`` without its reasoning: what scorers see."""
    reasoning: str | None = None
    finish_reason: str | None = None
    """``stop``, ``length``, ``content_filter``, ``tool_calls``; ``None`` if the engine gave none."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    timeline: Timeline = field(default_factory=Timeline)
    engine_id: str = ""
    """Which replica answered, e.g. ``SmolLM2/0``."""
    node_id: str = ""
    cost_usd: float | None = None
    attempts: int = 1
    """Requests sent for this result, retries included."""
    error: str | None = None
    error_kind: str | None = None
    request_params: dict[str, Any] | None = None
    """Parameters as they were sent, where an engine leaves out what the model refuses (``not_sent``)."""
    telemetry: dict[str, Any] | None = None
    """Device figures of this request by the row's names (``energy_joules``, ``power_watts``, ...), where
    the journal has to carry them: imported rows, whose devices nobody can ask again."""
    cached: bool | None = None
    """True for a reply from the response cache: nothing was sent, and nothing measured."""


@dataclass(slots=True)
class Score:
    """A scorer's verdict on one generation.

    ``score`` is the graded value in [0, 1]; left ``None`` it is 1 or 0 by the outcome, and stays
    ``None`` where nothing was graded.  ``metadata`` says how the verdict came about (which rule
    fired, what was extracted).
    """

    outcome: Outcome
    score: float | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        correct = self.outcome.is_correct
        if correct is None:
            self.score = None
        elif self.score is None:
            self.score = float(correct)
