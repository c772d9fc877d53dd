from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from email.utils import formatdate
from typing import Any

import pytest

from evalray.engines.base import Chunk, Engine, EngineConfig, EngineInfo, Usage
from evalray.engines.failures import parse_retry_after
from evalray.engines.session import MAX_REASON_CHARS, RetryPolicy, run_request, start_engine
from evalray.engines.timing import LIMIT, GapRecorder
from evalray.errors import EngineDied, EngineStartError, ErrorKind, RequestError
from evalray.types import GenerationRequest, SamplingParams

FAST = RetryPolicy(max_retries=3, base_seconds=0.001, cap_seconds=0.002)

Attempt = Callable[[GenerationRequest], AsyncIterator[Chunk]]


class ScriptedEngine(Engine):
    """Answers each attempt by the next of its scripts; the last one serves for ever."""

    name = "scripted"

    def __init__(self, *script: Attempt | BaseException | str | list[Chunk], **engine_args: Any) -> None:
        super().__init__(EngineConfig(model="m", engine="scripted", engine_args=engine_args))
        self.script = script
        self.requests: list[GenerationRequest] = []
        self.released = 0

    async def start(self) -> EngineInfo:
        return EngineInfo("scripted", "m")

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Chunk]:
        step = self.script[min(len(self.requests), len(self.script) - 1)]
        self.requests.append(request)
        try:
            if isinstance(step, BaseException):
                raise step
            if isinstance(step, str):
                yield Chunk(text=step)
                yield Chunk(finish_reason="stop", usage=Usage(5, 2))
            elif isinstance(step, list):
                for chunk in step:
                    yield chunk
            else:
                async for chunk in step(request):
                    yield chunk
        finally:
            self.released += 1

    async def close(self) -> None:
        pass


def ask(timeout_seconds: float = 10.0, **sampling: Any) -> GenerationRequest:
    return GenerationRequest(
        "r", ({"role": "user", "content": "q"},), SamplingParams(**sampling), timeout_seconds
    )


def retryable(kind: ErrorKind = "server_error", **fields: Any) -> RequestError:
    return RequestError(kind, "try again", retryable=True, **fields)


async def test_a_reply_is_measured_and_split() -> None:
    engine = ScriptedEngine(
        [
            Chunk(text="<think>2+2", at=time.monotonic() + 1.0),
            Chunk(text="</think>", at=time.monotonic() + 2.0),
            Chunk(text="4", at=time.monotonic() + 4.0),
            Chunk(finish_reason="stop", usage=Usage(9, 4, 3, 2), timings={"prompt_ms": 1.5}),
        ]
    )
    generation = await run_request(engine, ask(), engine_id="m/0", node_id="n", queued_at=time.time() - 5)
    assert (generation.model_answer, generation.reasoning, generation.raw_text) == (
        "4",
        "2+2",
        "<think>2+2</think>4",
    )
    assert (generation.prompt_tokens, generation.completion_tokens) == (9, 4)
    assert (generation.cached_tokens, generation.reasoning_tokens) == (3, 2)
    assert (generation.engine_id, generation.node_id, generation.attempts, generation.error) == (
        "m/0",
        "n",
        1,
        None,
    )
    line = generation.timeline
    assert line.ttft_seconds == pytest.approx(1.0, abs=0.2)
    assert line.decode_seconds == pytest.approx(3.0, abs=0.01)
    assert line.latency_seconds == pytest.approx(4.0, abs=0.2)
    assert line.queue_seconds == pytest.approx(5.0, abs=0.2)
    assert line.itl_mean_seconds == pytest.approx(1.5, abs=0.01)
    assert line.itl_p50_seconds == pytest.approx(1.5, abs=0.01)
    assert line.itl_max_seconds == pytest.approx(2.0, abs=0.01)
    assert line.server == {"prompt_ms": 1.5}


async def test_a_reply_in_one_piece_has_a_latency_and_no_time_to_first_token() -> None:
    generation = await run_request(ScriptedEngine([Chunk(text="4", finish_reason="stop", whole=True)]), ask())
    assert generation.timeline.latency_seconds is not None
    assert generation.timeline.ttft_seconds is None
    assert generation.timeline.itl_mean_seconds is None
    assert generation.completion_tokens is None


async def test_an_empty_completion_is_an_answer_and_no_error() -> None:
    generation = await run_request(ScriptedEngine([Chunk(finish_reason="stop")]), ask())
    assert (generation.model_answer, generation.error, generation.finish_reason) == ("", None, "stop")
    assert generation.timeline.ttft_seconds is None


async def test_what_passes_by_itself_is_tried_again() -> None:
    engine = ScriptedEngine(retryable(), retryable("connection"), "4")
    generation = await run_request(engine, ask(), policy=FAST)
    assert (generation.model_answer, generation.attempts, generation.error) == ("4", 3, None)


async def test_retries_end_and_leave_the_last_error() -> None:
    engine = ScriptedEngine(retryable())
    generation = await run_request(engine, ask(), policy=FAST)
    assert (generation.attempts, generation.error_kind, generation.error) == (4, "server_error", "try again")
    assert engine.released == 4


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RequestError("auth", "no"), "auth"),
        (ValueError("odd"), "engine"),
        (KeyError(), "engine"),
        (TimeoutError("of the SDK's own"), "engine"),
    ],
)
async def test_what_will_not_pass_is_not_tried_again(error: Exception, kind: str) -> None:
    generation = await run_request(ScriptedEngine(error), ask(), policy=FAST)
    assert (generation.error_kind, generation.attempts) == (kind, 1)


async def test_a_dead_engine_is_not_a_failed_row() -> None:
    with pytest.raises(EngineDied):
        await run_request(ScriptedEngine(EngineDied("gone")), ask(), policy=FAST)


async def _never(request: GenerationRequest) -> AsyncIterator[Chunk]:
    yield Chunk(text="half an")
    await asyncio.Event().wait()


async def test_a_hanging_engine_is_let_go_at_the_deadline_and_asked_once_more() -> None:
    engine = ScriptedEngine(_never)
    generation = await run_request(engine, ask(timeout_seconds=0.05), policy=FAST)
    assert (generation.error_kind, generation.attempts, generation.raw_text) == ("timeout", 2, "half an")
    assert engine.released == 2


async def test_cancellation_goes_through_and_releases_the_request() -> None:
    engine = ScriptedEngine(_never)
    task = asyncio.create_task(run_request(engine, ask(), policy=FAST))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine.released == 1


async def test_the_wait_a_server_asks_for_is_kept_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def note(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("evalray.engines.session.asyncio.sleep", note)
    engine = ScriptedEngine(
        retryable("rate_limited", retry_after_seconds=3.0),
        retryable("rate_limited", retry_after_seconds=9e9),
        "4",
    )
    await run_request(engine, ask(), policy=RetryPolicy(base_seconds=0.5, max_retry_after_seconds=60.0))
    assert 3.0 <= waits[0] <= 3.5
    assert 60.0 <= waits[1] <= 60.5


def test_back_off_grows_is_jittered_and_capped() -> None:
    policy = RetryPolicy(base_seconds=1.0, cap_seconds=8.0)
    for retry, limit in [(1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (9, 8.0)]:
        delays = [policy.delay_seconds(retryable(), retry) for _ in range(200)]
        assert 0.0 <= min(delays) < max(delays) <= limit
        assert max(delays) > 0.7 * limit


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("2", 2.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        (formatdate(1_000_030, usegmt=True), 30.0),
        (formatdate(999_000, usegmt=True), 0.0),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        (f"Mon, 01 Jan 2024 00:00:00 +{'9' * 30}", None),
        (None, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str | None, seconds: float | None) -> None:
    assert parse_retry_after(header, now=1_000_000) == seconds


async def test_stops_go_to_the_engine_and_to_the_answer() -> None:
    engine = ScriptedEngine("4\nQuestion: what is")
    generation = await run_request(engine, ask(stop=("a", "b", "c", "d", "Question:")))
    assert engine.requests[0].sampling.stop == ("a", "b", "c", "d"), "no more than servers take"
    assert (generation.model_answer, generation.finish_reason) == ("4\n", "stop")
    assert generation.raw_text == "4\nQuestion: what is"


@pytest.mark.parametrize(
    "stopped",
    ["<think>first step", [Chunk(reasoning="first step"), Chunk(finish_reason="stop")]],
)
async def test_a_stop_within_the_reasoning_costs_no_answer(stopped: str | list[Chunk]) -> None:
    engine = ScriptedEngine(
        stopped, "<think>first step\n\nsecond</think>ANSWER: 4\n\nNext", "<think>x</think>5"
    )
    first = await run_request(engine, ask(stop=("\n\n",)))
    second = await run_request(engine, ask(stop=("\n\n",)))
    assert (first.model_answer, first.reasoning, first.error) == ("ANSWER: 4", "first step\n\nsecond", None)
    assert second.model_answer == "5"
    assert [request.sampling.stop for request in engine.requests] == [("\n\n",), (), ()]


async def test_a_model_known_to_reason_is_never_sent_stops() -> None:
    engine = ScriptedEngine("<think>a</think>4", reasoning=True)
    await run_request(engine, ask(stop=("\n\n",)))
    assert engine.requests[0].sampling.stop == ()


async def test_reasoning_cut_by_the_token_limit_is_not_asked_again() -> None:
    engine = ScriptedEngine([Chunk(text="<think>going on"), Chunk(finish_reason="length")])
    generation = await run_request(engine, ask(stop=("x",)))
    assert (generation.model_answer, generation.finish_reason, generation.attempts) == ("", "length", 1)


async def test_reasoning_split_by_the_server_is_kept_beside_the_answer() -> None:
    engine = ScriptedEngine(
        [Chunk(reasoning="2+"), Chunk(reasoning="2"), Chunk(text="4"), Chunk(finish_reason="stop")]
    )
    generation = await run_request(engine, ask())
    assert (generation.model_answer, generation.reasoning) == ("4", "2+2")
    assert generation.raw_text == "<think>2+2</think>4"


def test_gap_statistics_stay_small_and_true() -> None:
    recorder = GapRecorder()
    for index in range(100_000):
        recorder.add(index / 100_000)
    assert len(recorder._kept) < LIMIT
    assert recorder.maximum == 0.99999
    assert recorder.total / recorder.count == pytest.approx(0.5, abs=1e-4)
    assert recorder.percentiles(0.5, 0.9, 0.99) == pytest.approx([0.5, 0.9, 0.99], abs=0.002)


def test_percentiles_interpolate() -> None:
    recorder = GapRecorder()
    for gap in (4.0, 1.0, 2.0, 3.0):
        recorder.add(gap)
    assert recorder.percentiles(0.0, 0.5, 1.0) == [1.0, 2.5, 4.0]


async def test_a_failed_attempt_took_until_it_failed() -> None:
    async def stalls(request: GenerationRequest) -> AsyncIterator[Chunk]:
        yield Chunk(text="half", at=time.monotonic())
        await asyncio.Event().wait()

    generation = await run_request(ScriptedEngine(stalls), ask(timeout_seconds=0.2), policy=FAST)
    assert generation.error_kind == "timeout"
    assert generation.timeline.latency_seconds is not None
    assert generation.timeline.latency_seconds >= 0.19


async def test_a_finish_reason_is_a_short_printable_word() -> None:
    engine = ScriptedEngine([Chunk(text="4", finish_reason="\x1b[31m<b>" + "x" * 10_000)])
    reason = (await run_request(engine, ask())).finish_reason
    assert reason is not None
    assert len(reason) == 64
    assert reason.isprintable()


KEY = "zq7Y-kD4x.Pw_31t"


class KeyedEngine(ScriptedEngine):
    """Has a key, and starts with what it is given."""

    start_with: EngineInfo | Exception = EngineInfo("keyed", "m")

    @property
    def secrets(self) -> tuple[str, ...]:
        return (KEY,)

    async def start(self) -> EngineInfo:
        if isinstance(self.start_with, Exception):
            raise self.start_with
        return self.start_with


async def test_a_finish_reason_cut_within_a_key_holds_nothing_of_it() -> None:
    for shift in range(MAX_REASON_CHARS + 1):
        engine = KeyedEngine([Chunk(text="4"), Chunk(finish_reason="x" * shift + KEY)])
        reason = (await run_request(engine, ask(), policy=FAST)).finish_reason
        assert reason is not None
        assert len(reason) <= MAX_REASON_CHARS
        assert KEY[:1] not in reason


async def test_an_engine_dies_and_fails_without_its_key() -> None:
    with pytest.raises(EngineDied, match=r"^it printed: \[redacted\]$"):
        await run_request(KeyedEngine(EngineDied(f"it printed: {KEY}")), ask(), policy=FAST)
    failed = await run_request(KeyedEngine(ValueError("x" * 490 + KEY)), ask(), policy=FAST)
    assert (failed.error_kind, KEY[:1] in str(failed.error)) == ("engine", False)


@pytest.mark.parametrize("error", [EngineStartError(f"no: {KEY}"), ValueError(f"no: {KEY}")])
async def test_an_engine_that_does_not_start_says_why_without_its_key(error: Exception) -> None:
    engine = KeyedEngine()
    engine.start_with = error
    with pytest.raises(EngineStartError, match=r"no: \[redacted\]$"):
        await start_engine(engine)


async def test_what_an_engine_says_of_itself_is_blanked_down_to_its_lists() -> None:
    engine = KeyedEngine()
    engine.start_with = EngineInfo(
        "keyed", "m", version=KEY, details={"headers": {"x-key": [f"Bearer {KEY}"]}}
    )
    info = await start_engine(engine)
    assert (info.version, info.details) == ("[redacted]", {"headers": {"x-key": ["Bearer [redacted]"]}})
