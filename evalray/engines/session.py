"""Drive one request through an engine, the same way for all engines.

Deadline per attempt, retries with exponential back-off and full jitter, the timeline, the split of
reasoning from answer, and the task's stop sequences happen here and nowhere else.  What comes back
is always a :class:`~evalray.types.Generation`; only :class:`~evalray.errors.EngineDied` and
cancellation go up.  Engines are started here too, so that their keys stay out of what they say then.

Stop sequences.  A stop that fires inside the reasoning ends a reply before its answer, so they are
always applied here, to the answer alone.  They are *also* sent to the engine, because a model that
runs on costs time, unless the model is known to reason (``engine.reasons``).  A reply that the
engine stopped within its reasoning shows such a model: it is asked once more without them, and so
the answer does not depend on when that was learnt.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any

from evalray.engines.base import Chunk, Engine, EngineConfig, EngineInfo, Usage
from evalray.engines.concurrency import Slot
from evalray.engines.failures import one_line
from evalray.engines.figures import count_of, measure_of, measures_of
from evalray.engines.masking import KeyMask, key_mask
from evalray.engines.reasoning import apply_stops, join_reasoning, split_reasoning
from evalray.engines.timing import GapRecorder
from evalray.errors import EngineDied, EngineStartError, RequestError
from evalray.types import Generation, GenerationRequest, Timeline

#: Characters of one reply beyond which it is refused, so that a server cannot fill the memory.
MAX_REPLY_CHARS = 64 << 20

#: Characters of a finish reason, a word by the protocol, that are kept of what a server sends.
MAX_REASON_CHARS = 64

_COUNTS = tuple(field.name for field in fields(Usage))

#: How long an engine may take to let go of a request that is given up.
_RELEASE_SECONDS = 5.0


@dataclass(slots=True, frozen=True)
class RetryPolicy:
    """When and how often a failed request is sent again.

    The ``n``-th retry waits a random time up to ``min(cap, base * 2**(n - 1))`` (full jitter), or
    what the server asked for, up to ``max_retry_after_seconds``, plus up to ``base``.
    A deadline that passed has used its time already, so it gets ``timeout_retries`` of its own.
    """

    max_retries: int = 5
    base_seconds: float = 0.5
    cap_seconds: float = 30.0
    max_retry_after_seconds: float = 120.0
    timeout_retries: int = 1

    @classmethod
    def from_config(cls, config: EngineConfig) -> RetryPolicy:
        return cls(max_retries=config.max_retries)

    def allows(self, error: RequestError, retries: int, timeouts: int) -> bool:
        """Whether to go on after ``retries`` retries and ``timeouts`` attempts that ran out of time."""
        if not error.retryable or retries >= self.max_retries:
            return False
        return error.kind != "timeout" or timeouts <= self.timeout_retries

    def delay_seconds(self, error: RequestError, retry: int) -> float:
        if error.retry_after_seconds is not None:
            asked = min(error.retry_after_seconds, self.max_retry_after_seconds)
            return asked + random.uniform(0.0, self.base_seconds)
        return random.uniform(0.0, min(self.cap_seconds, self.base_seconds * 2.0 ** (retry - 1)))


_DEFAULT_POLICY = RetryPolicy()


class _Attempt:
    """What one attempt brought so far."""

    __slots__ = (
        "chars",
        "cost_usd",
        "finish_reason",
        "first_at",
        "gaps",
        "last_at",
        "reasoning",
        "refused",
        "request_params",
        "secrets",
        "sent",
        "sent_at",
        "text",
        "timings",
        "usage",
        "whole",
    )

    def __init__(self, secrets: tuple[str, ...]) -> None:
        self.secrets = secrets
        self.sent = time.monotonic()
        self.sent_at = time.time()
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.chars = 0
        self.finish_reason: str | None = None
        self.usage: Usage | None = None
        self.timings: dict[str, float] | None = None
        self.cost_usd: float | None = None
        self.whole = False
        self.refused = False
        self.request_params: dict[str, Any] | None = None
        self.first_at: float | None = None
        self.last_at: float | None = None
        self.gaps: GapRecorder | None = None

    def take(self, chunk: Chunk) -> None:
        if chunk.text or chunk.reasoning:
            now = chunk.at or time.monotonic()
            if self.last_at is None:
                self.first_at = now
            else:
                if self.gaps is None:
                    self.gaps = GapRecorder()
                self.gaps.add(now - self.last_at)
            self.last_at = now
            if chunk.text:
                self.text.append(chunk.text)
            if chunk.reasoning:
                self.reasoning.append(chunk.reasoning)
            self.chars += len(chunk.text) + len(chunk.reasoning)
            if self.chars > MAX_REPLY_CHARS:
                raise RequestError("bad_response", f"a reply of over {MAX_REPLY_CHARS >> 20} M characters")
        if chunk.finish_reason is not None:
            self.finish_reason = one_line(chunk.finish_reason, self.secrets, MAX_REASON_CHARS)
        if chunk.refused:
            self.refused = True
        if chunk.usage is not None:
            self.usage = Usage(*(count_of(getattr(chunk.usage, name)) for name in _COUNTS))
        if chunk.timings is not None:
            self.timings = measures_of(chunk.timings)
        if chunk.cost_usd is not None:
            self.cost_usd = measure_of(chunk.cost_usd)
        if chunk.whole:
            self.whole = True
        if chunk.request_params is not None:
            self.request_params = chunk.request_params


async def start_engine(engine: Engine) -> EngineInfo:
    """Start ``engine``; what it says of itself is without its keys, and so is why it did not start.

    Raises :class:`EngineStartError`, whatever an SDK raises while it loads.
    """
    try:
        info = await engine.start()
    except EngineStartError as error:
        raise EngineStartError(key_mask(engine.secrets)(str(error))) from error
    except Exception as error:
        said = one_line(f"{type(error).__name__}: {error}", engine.secrets)
        raise EngineStartError(said) from error
    mask = key_mask(engine.secrets)
    return replace(info, version=mask(info.version), details=mask.all_of(info.details))


async def run_request(
    engine: Engine,
    request: GenerationRequest,
    *,
    engine_id: str = "",
    node_id: str = "",
    policy: RetryPolicy = _DEFAULT_POLICY,
    queued_at: float | None = None,
    slot: Slot | None = None,
) -> Generation:
    """Ask ``engine`` until it answers, or until ``policy`` gives up.

    ``queued_at`` is the Unix time at which the engine actor took the request in; default now.
    ``slot`` is the caller's, is told how each attempt went, and is let go of between attempts.
    Raises :class:`EngineDied`, and lets cancellation through; every other failure is in the result.
    """
    entered, entered_at = time.monotonic(), time.time()
    queued_at = min(queued_at, entered_at) if queued_at is not None else entered_at
    queued = entered - (entered_at - queued_at)
    retries = timeouts = 0
    attempts = 0
    while True:
        sent = _with_stops_to_send(engine, request)
        attempt = _Attempt(engine.secrets)
        attempts += 1
        if slot is not None:
            slot.sent()
        error = await _try(engine, sent, attempt)
        if slot is not None:
            slot.ended(error, None if attempt.first_at is None else attempt.first_at - attempt.sent)
        reply = _read(engine, attempt)
        if error is None:
            engine.reasons = engine.reasons or reply.reasoning is not None
            if _stopped_in_reasoning(sent, attempt, reply):
                continue
            break
        timeouts += error.kind == "timeout"
        if not policy.allows(error, retries, timeouts):
            break
        retries += 1
        if slot is not None:
            slot.release()
        await asyncio.sleep(policy.delay_seconds(error, retries))
        if slot is not None:
            await slot.regain()

    answer, cut = apply_stops(reply.answer, request.sampling.stop)
    finish_reason = "content_filter" if attempt.refused else "stop" if cut else attempt.finish_reason
    usage = attempt.usage
    generation = Generation(
        raw_text=reply.raw_text,
        model_answer=answer,
        reasoning=reply.reasoning,
        finish_reason=finish_reason,
        prompt_tokens=usage.prompt_tokens if usage else None,
        completion_tokens=usage.completion_tokens if usage else None,
        cached_tokens=usage.cached_tokens if usage else None,
        reasoning_tokens=usage.reasoning_tokens if usage else None,
        timeline=_timeline(attempt, queued, queued_at, failed=error is not None),
        engine_id=engine_id,
        node_id=node_id,
        cost_usd=attempt.cost_usd,
        attempts=attempts,
        error=None if error is None else _with_advice(error, engine),
        error_kind=None if error is None else error.kind,
        request_params=attempt.request_params,
    )
    if engine.secrets:
        _blank_keys(generation, key_mask(engine.secrets))
    return generation


def _with_advice(error: RequestError, engine: Engine) -> str:
    """What went wrong, and what to do about it where that depends on the engine."""
    said = str(error)
    return f"{said.rstrip('.')}: {engine.context_advice}" if error.kind == "context_length" else said


def _blank_keys(generation: Generation, mask: KeyMask) -> None:
    generation.raw_text = mask(generation.raw_text)
    generation.model_answer = mask(generation.model_answer)
    for name in ("reasoning", "finish_reason", "error"):
        text = getattr(generation, name)
        if text is not None:
            setattr(generation, name, mask(text))
    server = generation.timeline.server
    if server is not None:
        generation.timeline.server = {mask(name): value for name, value in server.items()}


async def _try(engine: Engine, request: GenerationRequest, attempt: _Attempt) -> RequestError | None:
    """One attempt; the error that ended it, if one did."""
    stream = engine.generate(request)
    deadline = asyncio.timeout(request.timeout_seconds)
    try:
        async with deadline:
            async for chunk in stream:
                attempt.take(chunk)
        return None
    except RequestError as error:
        await _release(stream)
        return error
    except EngineDied as error:
        raise EngineDied(key_mask(engine.secrets)(str(error))) from error
    except Exception as error:  # noqa: BLE001 -- whatever an SDK raises is this row's error, not the run's
        await _release(stream)
        if isinstance(error, TimeoutError) and deadline.expired():
            return RequestError(
                "timeout", f"no complete reply within {request.timeout_seconds:g} s", retryable=True
            )
        detail = one_line(str(error), engine.secrets)
        return RequestError("engine", f"{type(error).__name__}: {detail}" if detail else type(error).__name__)


async def _release(stream: AsyncIterator[Chunk]) -> None:
    """Close an iterator that is given up, so that the engine frees what the request holds."""
    close = getattr(stream, "aclose", None)
    if close is not None:
        with suppress(Exception):
            async with asyncio.timeout(_RELEASE_SECONDS):
                await close()


def _with_stops_to_send(engine: Engine, request: GenerationRequest) -> GenerationRequest:
    stops = request.sampling.stop
    if not stops:
        return request
    kept = () if engine.reasons else stops[: engine.max_stop_sequences]
    if kept == stops:
        return request
    return replace(request, sampling=replace(request.sampling, stop=kept))


@dataclass(slots=True, frozen=True)
class _Reply:
    raw_text: str
    answer: str
    reasoning: str | None
    complete: bool


def _read(engine: Engine, attempt: _Attempt) -> _Reply:
    text = "".join(attempt.text)
    if not attempt.reasoning:
        told = engine.config.engine_args.get("reasoning") is True
        split = split_reasoning(text, template_opened=told and attempt.finish_reason == "length")
        return _Reply(text, split.answer, split.reasoning, split.complete)
    server_split = "".join(attempt.reasoning)
    # A server may split off the first block only, so the rest is looked through as well.
    rest = split_reasoning(text)
    reasoning = server_split if rest.reasoning is None else f"{server_split}\n{rest.reasoning}"
    return _Reply(
        join_reasoning(server_split, text), rest.answer, reasoning, rest.complete and bool(text.strip())
    )


def _stopped_in_reasoning(sent: GenerationRequest, attempt: _Attempt, reply: _Reply) -> bool:
    return (
        bool(sent.sampling.stop)
        and not reply.complete
        and reply.reasoning is not None
        and attempt.finish_reason != "length"
    )


def _timeline(attempt: _Attempt, queued: float, queued_at: float, *, failed: bool) -> Timeline:
    """A reply took until its last piece; an attempt that failed, until it failed."""
    now = time.monotonic()
    last = now if attempt.last_at is None else attempt.last_at
    ended = now if failed else last
    timeline = Timeline(
        queued_at=queued_at,
        sent_at=attempt.sent_at,
        sent_monotonic=attempt.sent,
        completed_at=attempt.sent_at + (ended - attempt.sent),
        queue_seconds=attempt.sent - queued,
        latency_seconds=ended - attempt.sent,
        server=attempt.timings,
    )
    if attempt.whole or attempt.first_at is None:
        return timeline
    timeline.ttft_seconds = attempt.first_at - attempt.sent
    gaps = attempt.gaps
    if gaps is not None:
        timeline.decode_seconds = last - attempt.first_at
        timeline.itl_mean_seconds = gaps.total / gaps.count
        timeline.itl_max_seconds = gaps.maximum
        (
            timeline.itl_p50_seconds,
            timeline.itl_p90_seconds,
            timeline.itl_p99_seconds,
        ) = gaps.percentiles(0.5, 0.9, 0.99)
    return timeline
