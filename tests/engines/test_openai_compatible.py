from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from stub_server import StubServer, answer, delta, hang, reply, sse, stream, usage

from evalray.engines.base import EngineConfig
from evalray.engines.openai_compatible import OpenAICompatibleEngine
from evalray.engines.session import RetryPolicy, run_request
from evalray.errors import EngineStartError
from evalray.types import Generation, GenerationRequest, SamplingParams

FAST = RetryPolicy(max_retries=2, base_seconds=0.001, cap_seconds=0.002)
KEY = "sk-very-secret"


def ask(timeout_seconds: float = 20.0, **sampling: Any) -> GenerationRequest:
    messages = ({"role": "user", "content": "What is 2 plus 2?"},)
    return GenerationRequest("r", messages, SamplingParams(**{"max_tokens": 16, **sampling}), timeout_seconds)


async def run(engine: OpenAICompatibleEngine, **sampling: Any) -> Generation:
    return await run_request(engine, ask(**sampling), policy=FAST)


async def test_a_streamed_answer_comes_with_its_counts(stub: StubServer, connect: Any) -> None:
    details = {
        "prompt_tokens_details": {"cached_tokens": 5},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    stub.script = [
        stream(
            sse(
                delta(role="assistant"),
                delta("ANS"),
                delta("WER: 4"),
                delta(finish="stop"),
                usage(**details),
                "[DONE]",
            )
        )
    ]
    generation = await run(await connect())
    assert (generation.model_answer, generation.finish_reason, generation.error) == (
        "ANSWER: 4",
        "stop",
        None,
    )
    assert (generation.prompt_tokens, generation.completion_tokens) == (7, 3)
    assert (generation.cached_tokens, generation.reasoning_tokens) == (5, 2)
    assert generation.timeline.ttft_seconds is not None


async def test_only_what_is_set_is_sent(stub: StubServer, connect: Any) -> None:
    engine = await connect(engine_args={"extra_body": {"min_p": 0.05}})
    await run(engine)
    await run(engine, top_k=5, top_p=0.9, seed=7, stop=("x",), temperature=0.7)
    common = {
        "model": "stub",
        "messages": [{"role": "user", "content": "What is 2 plus 2?"}],
        "max_tokens": 16,
        "min_p": 0.05,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert stub.bodies[0] == {**common, "temperature": 0.0}
    assert stub.bodies[1] == {
        **common,
        "temperature": 0.7,
        "top_k": 5,
        "top_p": 0.9,
        "seed": 7,
        "stop": ["x"],
    }


@pytest.mark.parametrize("pause", [0.0, 0.02], ids=["at once", "body ends after [DONE]"])
async def test_connections_are_used_again(stub: StubServer, connect: Any, pause: float) -> None:
    stub.script = [stream(sse(delta("4"), delta(finish="stop"), "[DONE]"), pause=pause)]
    engine = await connect()
    for _ in range(5):
        await run(engine)
    assert len(stub.connections) == 1


async def test_without_streaming_nothing_is_claimed_about_the_first_token(
    stub: StubServer, connect: Any
) -> None:
    message = {"role": "assistant", "content": "4", "reasoning_content": "2+2"}
    stub.script = [reply(200, {"choices": [{"message": message, "finish_reason": "stop"}]})]
    generation = await run(await connect(engine_args={"stream": False}))
    assert "stream" not in stub.bodies[0]
    assert (generation.model_answer, generation.reasoning) == ("4", "2+2")
    assert generation.timeline.ttft_seconds is None
    assert generation.completion_tokens is None


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_that_the_server_splits_off_is_kept(
    stub: StubServer, connect: Any, field: str
) -> None:
    stub.script = [stream(sse(delta(**{field: "2+2"}), delta("4"), delta(finish="stop"), "[DONE]"))]
    generation = await run(await connect())
    assert (generation.model_answer, generation.reasoning, generation.completion_tokens) == ("4", "2+2", None)


@pytest.mark.parametrize(
    ("status", "body", "kind", "attempts"),
    [
        (400, {"error": {"message": "bad field"}}, "bad_request", 1),
        (
            400,
            {"error": {"message": "This model's maximum context length is 512 tokens"}},
            "context_length",
            1,
        ),
        (400, {"error": {"code": "context_length_exceeded", "message": "too long"}}, "context_length", 1),
        (422, {"detail": [{"msg": "field required"}]}, "bad_request", 1),
        (400, {"error": {"code": "content_filter", "message": "filtered"}}, "content_filter", 1),
        (401, {"error": "who are you"}, "auth", 1),
        (403, "forbidden", "auth", 1),
        (404, {"object": "error", "message": "no such model"}, "not_found", 1),
        (408, "", "server_error", 3),
        (429, {"error": {"message": "slow down"}}, "rate_limited", 3),
        (429, {"error": {"type": "insufficient_quota", "message": "pay"}}, "rate_limited", 1),
        (500, "<html>oops</html>", "server_error", 3),
        (503, None, "server_error", 3),
        (529, {"error": {"message": "overloaded"}}, "rate_limited", 3),
        (302, "", "bad_response", 1),
    ],
)
async def test_statuses_are_classified(
    stub: StubServer, connect: Any, status: int, body: Any, kind: str, attempts: int
) -> None:
    stub.script = [reply(status, body)]
    generation = await run(await connect())
    assert (generation.error_kind, generation.attempts) == (kind, attempts)
    assert generation.error is not None
    assert str(status) in generation.error
    assert "\n" not in generation.error


async def test_an_overlong_prompt_names_both_token_counts(stub: StubServer, connect: Any) -> None:
    error = {
        "code": 400,
        "type": "exceed_context_size_error",
        "message": "x",
        "n_prompt_tokens": 900,
        "n_ctx": 512,
    }
    stub.script = [reply(400, {"error": error})]
    generation = await run(await connect())
    assert generation.error_kind == "context_length"
    assert generation.error == (
        "HTTP 400: the prompt has 900 tokens, the context 512: shorten the prompt, lower max_tokens or start the "
        "server with a larger context (llama-server --ctx-size, vllm serve --max-model-len)"
    )


async def test_too_many_requests_and_then_an_answer(stub: StubServer, connect: Any) -> None:
    stub.script = [reply(429, {"error": {"message": "slow down"}}, Retry_After="0"), reply(500), answer()]
    generation = await run(await connect())
    assert (generation.model_answer, generation.attempts, generation.error) == ("ANSWER: 4", 3, None)


async def test_a_hanging_server_ends_at_the_deadline(stub: StubServer, connect: Any) -> None:
    stub.script = [hang]
    generation = await run_request(await connect(), ask(timeout_seconds=0.1), policy=FAST)
    assert (generation.error_kind, generation.attempts) == ("timeout", 2)


BROKEN = {
    "garbage": stream(b"\x00\xff\xfe garbage", content_type="text/html"),
    "empty": stream(b""),
    "JSON that is not the protocol": reply(200, {"hello": "world"}),
    "JSON that is no object": reply(200, [1, 2]),
    "an event that is no JSON": stream(b"data: {nope\n\n"),
    "an event that is not the protocol": stream(sse("[1, 2]")),
    "half a stream": stream(sse(delta("AN"))),
    "half an event": stream(sse(delta("AN")) + b'data: {"choi'),
    "a dropped connection": stream(sse(delta("AN")), pause=0.01, abort=True),
}


@pytest.mark.parametrize("handler", BROKEN.values(), ids=BROKEN.keys())
async def test_a_broken_reply_is_tried_again_and_never_an_answer(
    stub: StubServer, connect: Any, handler: Any
) -> None:
    engine = await connect()
    stub.script = [handler, answer()]
    assert (await run(engine)).model_answer == "ANSWER: 4"
    stub.script, stub.bodies = [handler], []
    generation = await run(engine)
    assert generation.error_kind in ("bad_response", "connection", "server_error")
    assert generation.attempts == 3


GIVEN_UP = {
    "a gateway's error beside its choices": {
        **delta("", "error"),
        "error": {"code": 502, "message": "upstream"},
    },
    "an error as finish reason": delta("", "error"),
    "an aborted request": delta("", "abort"),
}


@pytest.mark.parametrize("event", GIVEN_UP.values(), ids=GIVEN_UP.keys())
async def test_a_reply_that_the_server_gave_up_is_no_answer(
    stub: StubServer, connect: Any, event: Any
) -> None:
    stub.script = [stream(sse(delta("ANSWER: 5"), event, "[DONE]"))]
    generation = await run(await connect())
    assert (generation.error_kind, generation.attempts) == ("server_error", 3)


async def test_a_query_of_the_base_url_stays_behind_the_path(stub: StubServer, connect: Any) -> None:
    assert (await run(await connect(base_url=f"{stub.url}/?api-version=1"))).error is None
    assert stub.queries[-1] == "api-version=1"


async def test_an_error_within_the_stream_is_classified_by_its_code(stub: StubServer, connect: Any) -> None:
    stub.script = [stream(sse(delta("AN"), {"error": {"code": 429, "message": "slow down"}}))]
    generation = await run(await connect())
    assert (generation.error_kind, generation.attempts) == ("rate_limited", 3)


@pytest.mark.parametrize("text", ["a\ud835b", "a\0b", "\u2028\r\n\x1b[31m", "😀" * 3])
async def test_odd_characters_arrive_as_they_were_sent(stub: StubServer, connect: Any, text: str) -> None:
    stub.script = [answer(text)]
    assert (await run(await connect())).raw_text == text


async def test_raw_control_characters_and_broken_utf8_are_no_reason_to_lose_an_answer(
    stub: StubServer, connect: Any
) -> None:
    event = b'data: {"choices":[{"delta":{"content":"a\x00b\xff"},"finish_reason":"stop"}]}\n\n'
    stub.script = [stream(event, b"data: [DONE]\n\n")]
    assert (await run(await connect())).raw_text == "a\0b\ufffd"


async def test_an_answer_of_ten_megabytes_arrives_whole(stub: StubServer, connect: Any) -> None:
    text = "0123456789" * 1_000_000
    stub.script = [answer(text)]
    assert (await run(await connect())).raw_text == text


async def test_a_prompt_with_a_lone_surrogate_is_sent_all_the_same(stub: StubServer, connect: Any) -> None:
    request = GenerationRequest("r", ({"role": "user", "content": "a\ud835b"},), SamplingParams())
    assert (await run_request(await connect(), request)).error is None
    assert stub.bodies[0]["messages"][0]["content"] == "a?b"


async def test_a_server_without_stream_options_is_asked_without_them_from_then_on(
    stub: StubServer, connect: Any
) -> None:
    stub.script = [reply(400, {"error": {"message": "unknown field: stream_options"}}), answer()]
    engine = await connect()
    assert (await run(engine)).attempts == 1
    await run(engine)
    assert ["stream_options" in body for body in stub.bodies] == [True, False, False]


async def test_a_server_with_another_name_for_max_tokens_gets_it(stub: StubServer, connect: Any) -> None:
    stub.script = [
        reply(400, {"error": {"message": "'max_tokens' is not supported: use 'max_completion_tokens'"}}),
        answer(),
    ]
    assert (await run(await connect())).error is None
    assert stub.bodies[1]["max_completion_tokens"] == 16
    assert "max_tokens" not in stub.bodies[1]


async def test_the_key_goes_to_the_server_and_into_no_message(
    stub: StubServer, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    stub.script = [reply(401, {"error": {"message": f"Incorrect key {KEY}"}})]
    engine = await connect(api_key_env="MY_KEY")
    generation = await run(engine)
    assert stub.headers[-1]["Authorization"] == f"Bearer {KEY}"
    assert "MY_KEY" in str(generation.error)
    assert KEY not in json.dumps(generation.error)


async def test_server_text_is_cut_short_in_messages(stub: StubServer, connect: Any) -> None:
    stub.script = [reply(400, "x" * 100_000)]
    assert len(str((await run(await connect())).error)) < 600


@pytest.mark.parametrize("number", [10**400, float("nan"), float("inf"), -5, True, "7"])
async def test_figures_that_cannot_be_true_were_not_measured_and_cost_no_answer(
    stub: StubServer, connect: Any, number: object
) -> None:
    event = {**usage(prompt=number, completion=number, cost=number), "timings": {"predicted_ms": number}}
    stub.script = [stream(sse(delta("ANSWER: 4"), delta(finish="stop"), event, "[DONE]"))]
    generation = await run(await connect())
    assert generation.model_answer == "ANSWER: 4"
    assert (generation.prompt_tokens, generation.completion_tokens) == (None, None)
    assert (generation.cost_usd, generation.timeline.server) == (None, {})


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    "shape",
    [
        {"usage": "7 tokens"},
        {"usage": [7, 3]},
        {"usage": {"prompt_tokens": "7", "completion_tokens": [3], "prompt_tokens_details": 7}},
        {"usage": {"completion_tokens_details": ["x"]}},
        {"timings": [1, 2]},
    ],
)
async def test_counts_in_another_shape_were_not_measured_and_cost_no_answer(
    stub: StubServer, connect: Any, shape: dict[str, Any], streamed: bool
) -> None:
    whole = {"choices": [{"message": {"content": "4"}, "finish_reason": "stop"}], **shape}
    pieces = sse(delta("4"), delta(finish="stop"), {"choices": [], **shape}, "[DONE]")
    stub.script = [stream(pieces) if streamed else reply(200, whole)]
    generation = await run(await connect(engine_args={"stream": streamed}))
    assert (generation.model_answer, generation.error, generation.attempts) == ("4", None, 1)
    assert generation.prompt_tokens is None


async def test_a_long_list_of_models_is_read_to_its_end(stub: StubServer) -> None:
    others = [{"id": f"other{number}", "description": "x" * 1000} for number in range(200)]
    listed = json.dumps({"data": [*others, {"id": "stub", "max_model_len": 77}]}).encode()
    pieces = [listed[at : at + 50_000] for at in range(0, len(listed), 50_000)]
    stub.models = stream(*pieces, content_type="application/json", pause=0.01)
    engine = OpenAICompatibleEngine(EngineConfig(model="stub", engine="openai-compatible", base_url=stub.url))
    info = await engine.start()
    await engine.close()
    assert info.context_tokens == 77


async def test_a_listed_model_tells_its_context(stub: StubServer) -> None:
    engine = OpenAICompatibleEngine(
        EngineConfig(model="stub", engine="openai-compatible", base_url=f"{stub.url}/")
    )
    info = await engine.start()
    await engine.close()
    await engine.close()
    assert (info.context_tokens, info.max_concurrency, info.details["listed"]) == (2048, 32, True)


@pytest.mark.parametrize(
    "models", [reply(404), reply(500, "oops"), reply(200, "garbage"), reply(200, {"data": []})]
)
async def test_any_answer_to_the_first_question_means_alive(
    stub: StubServer, connect: Any, models: Any
) -> None:
    stub.models = models
    assert (await run(await connect())).error is None


async def test_a_server_that_loads_its_model_is_waited_for(stub: StubServer, connect: Any) -> None:
    ready, loading = stub.models, [reply(503), reply(503)]

    async def models(request: Any) -> Any:
        return await (loading.pop() if loading else ready)(request)

    stub.models = models
    await connect(start_timeout_seconds=10.0)
    assert not loading


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_stops_the_start_and_names_its_variable(
    stub: StubServer, connect: Any, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    stub.models = reply(status, f"bad key {KEY}")
    with pytest.raises(EngineStartError, match="MY_KEY") as caught:
        await connect(api_key_env="MY_KEY")
    assert KEY not in str(caught.value)
    with pytest.raises(EngineStartError, match="api_key_env"):
        await connect()


async def test_a_server_that_is_not_there_is_named(connect: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://user:password@127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(
            EngineStartError, match=r"http://127.0.0.1:\d+/v1 cannot be reached.*start it"
        ) as caught:
            await connect(base_url=url)
    assert "password" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"base_url": None}, "base_url is missing"),
        ({"base_url": "localhost:8000"}, "http://"),
        ({"api_key_env": "NO_SUCH_VARIABLE"}, "NO_SUCH_VARIABLE"),
        ({"engine_args": {"strem": True}}, "strem"),
        ({"engine_args": {"stream": "yes"}}, "true or false"),
        ({"engine_args": {"extra_body": {"x": {1, 2}}}}, "extra_body"),
    ],
)
async def test_wrong_settings_are_named(connect: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineStartError, match=message):
        await connect(**settings)


async def test_a_server_that_goes_away_is_a_connection_error(stub: StubServer, connect: Any) -> None:
    engine = await connect()
    await stub.stop()
    generation = await run(engine)
    assert (generation.error_kind, generation.attempts) == ("connection", 3)


EMPTY = {
    "no choice at all": sse({"choices": []}, "[DONE]"),
    "counts and no choice": sse(usage(), "[DONE]"),
    "an end and nothing else": sse("[DONE]"),
}


@pytest.mark.parametrize("events", EMPTY.values(), ids=EMPTY.keys())
async def test_a_stream_without_any_choice_is_no_answer(
    stub: StubServer, connect: Any, events: bytes
) -> None:
    stub.script = [stream(events)]
    generation = await run(await connect())
    assert (generation.error_kind, generation.attempts) == ("bad_response", 3)


async def test_an_empty_answer_with_its_counts_is_an_answer(stub: StubServer, connect: Any) -> None:
    stub.script = [stream(sse(delta(role="assistant"), delta(finish="stop"), usage(), "[DONE]"))]
    generation = await run(await connect())
    assert (generation.error, generation.model_answer, generation.completion_tokens) == (None, "", 3)


MESSAGE = {"choices": [{"message": {"content": "4"}, "finish_reason": "stop"}]}


@pytest.mark.parametrize("kind", ["text/plain", "application/octet-stream", "text/event-stream"])
async def test_a_whole_reply_is_read_whatever_its_type_is_called(
    stub: StubServer, connect: Any, kind: str
) -> None:
    body = json.dumps(MESSAGE, indent=1).encode()
    stub.script = [stream(b" \n", body[:30], body[30:], content_type=kind, pause=0.01)]
    generation = await run(await connect())
    assert (generation.error, generation.model_answer, generation.finish_reason) == (None, "4", "stop")


REFUSAL = {"choices": [{"message": {"content": None, "refusal": "I can't"}, "finish_reason": "stop"}]}


@pytest.mark.parametrize(
    "handler",
    [
        reply(200, REFUSAL),
        stream(sse(delta(refusal="I "), delta(refusal="can't"), delta(finish="stop"), "[DONE]")),
    ],
    ids=["whole", "streamed"],
)
async def test_a_refusal_is_the_answer(stub: StubServer, connect: Any, handler: Any) -> None:
    stub.script = [handler]
    generation = await run(await connect())
    assert (generation.error, generation.model_answer, generation.finish_reason) == (
        None,
        "I can't",
        "content_filter",
    )


async def test_a_key_that_the_server_echoes_is_in_nothing_that_is_kept(
    stub: StubServer, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    stub.script = [
        stream(
            sse(delta(reasoning_content=f"they sent {KEY}"), delta(f"It is {KEY[:5]}"), delta(KEY[5:], KEY))
        )
    ]
    generation = await run(await connect(api_key_env="MY_KEY"))
    assert generation.model_answer == "It is [redacted]"
    assert KEY not in repr(generation)
