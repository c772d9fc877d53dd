from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asking import SCHEMA, Connect, run, starting
from scripted_server import ScriptedServer, events
from stub_server import delta, reply, sse, stream, usage

from evalray.engines.openai_api import OpenAIEngine
from evalray.errors import EngineStartError

KEY = "sk-very-secret"


def chat(text: str = "ANSWER: 4", **details: Any) -> Any:
    return stream(sse(delta(text), delta(finish="stop"), usage(**details), "[DONE]"))


def response(*parts: dict[str, Any], ending: str = "completed", **fields: Any) -> Any:
    counts = {
        "input_tokens": 100,
        "output_tokens": 50,
        "total_tokens": 150,
        "input_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 30},
    }
    body = {"id": "r", "object": "response", "status": ending, "output": [], "usage": counts, **fields}
    return stream(events(*parts, {"type": f"response.{ending}", "response": body}))


def text_part(text: str, kind: str = "output_text") -> dict[str, Any]:
    return {"type": f"response.{kind}.delta", "delta": text, "item_id": "i", "output_index": 0}


@pytest.fixture
async def connect(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Connect]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    async with starting(OpenAIEngine, base_url=f"{server.url}/v1") as start:
        yield start


async def test_a_chat_answer_comes_with_counts_cost_and_what_was_sent(
    server: ScriptedServer, connect: Connect
) -> None:
    details = {
        "prompt_tokens_details": {"cached_tokens": 5},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    server.script = [chat(prompt=10, completion=4, **details)]
    generation = await run(
        await connect("gpt-4o"), system="Be brief.", top_p=0.5, seed=7, stop=("x",), top_k=3
    )
    assert (generation.model_answer, generation.finish_reason, generation.error) == (
        "ANSWER: 4",
        "stop",
        None,
    )
    assert (generation.prompt_tokens, generation.completion_tokens) == (10, 4)
    assert (generation.cached_tokens, generation.reasoning_tokens) == (5, 2)
    assert generation.cost_usd == pytest.approx((5 * 2.5 + 5 * 1.25 + 4 * 10) / 1e6)
    assert generation.timeline.ttft_seconds is not None
    path, headers, body = server.posts[0]
    assert (path, headers["Authorization"]) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert body == {
        "model": "gpt-4o",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What is 2 plus 2?"},
        ],
        "max_tokens": 16,
        "temperature": 0.0,
        "top_p": 0.5,
        "seed": 7,
        "stop": ["x"],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert generation.request_params is not None
    assert generation.request_params["temperature"] == 0.0
    assert generation.request_params["not_sent"] == ["top_k"]


async def test_a_reasoning_model_goes_through_responses_without_sampling_parameters(
    server: ScriptedServer, connect: Connect
) -> None:
    server.script = [
        response(text_part("2+2", "reasoning_summary_text"), text_part("ANSWER"), text_part(": 4"))
    ]
    engine = await connect("gpt-5.2", engine_args={"reasoning_effort": "low", "reasoning_summary": "auto"})
    generation = await run(engine, system="Be brief.", stop=("x",), seed=1)
    assert (generation.model_answer, generation.reasoning) == ("ANSWER: 4", "2+2")
    assert (generation.prompt_tokens, generation.completion_tokens) == (100, 50)
    assert (generation.cached_tokens, generation.reasoning_tokens) == (40, 30)
    assert generation.cost_usd == pytest.approx((60 * 1.75 + 40 * 0.175 + 50 * 14) / 1e6)
    path, _, body = server.posts[0]
    assert path == "/v1/responses"
    assert body == {
        "model": "gpt-5.2",
        "instructions": "Be brief.",
        "input": [{"role": "user", "content": "What is 2 plus 2?"}],
        "max_output_tokens": 16,
        "reasoning": {"effort": "low", "summary": "auto"},
        "store": False,
        "stream": True,
    }
    assert generation.request_params is not None
    assert generation.request_params["not_sent"] == ["seed", "stop", "temperature"]


async def test_a_reasoning_model_through_chat_gets_the_limit_by_its_new_name(
    server: ScriptedServer, connect: Connect
) -> None:
    server.script = [chat()]
    engine = await connect("o3", engine_args={"api": "chat", "reasoning_effort": "high"})
    await run(engine)
    body = server.bodies[0]
    assert (body["max_completion_tokens"], body["reasoning_effort"]) == (16, "high")
    assert "temperature" not in body
    assert "max_tokens" not in body


async def test_an_unknown_price_is_no_price(server: ScriptedServer, connect: Connect) -> None:
    server.script = [chat()]
    assert (await run(await connect("gpt-4o-nonesuch"))).cost_usd is None
    prices = {"price_input_per_mtok": 1.0, "price_output_per_mtok": 2.0}
    assert (await run(await connect(engine_args=prices))).cost_usd == pytest.approx(13e-6)
    tier = {"extra_body": {"service_tier": "flex"}}
    assert (await run(await connect("gpt-4o", engine_args=tier))).cost_usd is None


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_without_streaming_the_answer_is_the_same(
    server: ScriptedServer, connect: Connect, api: str
) -> None:
    message = {"role": "assistant", "content": "4"}
    whole = {"id": "c", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    part = {"type": "output_text", "text": "4", "annotations": []}
    output = [
        {"type": "reasoning", "id": "x", "summary": [{"type": "summary_text", "text": "2+2"}]},
        {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]},
    ]
    responses = {"id": "r", "object": "response", "status": "completed", "output": output}
    server.script = [reply(200, whole if api == "chat" else responses)]
    generation = await run(await connect(engine_args={"stream": False, "api": api}))
    assert (generation.model_answer, generation.finish_reason) == ("4", "stop")
    assert generation.reasoning == (None if api == "chat" else "2+2")
    assert generation.timeline.ttft_seconds is None
    assert generation.completion_tokens is None


async def test_a_schema_is_strict_and_has_a_name_in_both_apis(
    server: ScriptedServer, connect: Connect
) -> None:
    server.script = [chat(), response()]
    await run(await connect("gpt-4o"), schema=SCHEMA)
    await run(await connect("gpt-5.2"), schema=SCHEMA)
    named = {"name": "reply", "strict": True, "schema": SCHEMA}
    assert server.bodies[0]["response_format"] == {"type": "json_schema", "json_schema": named}
    assert server.bodies[1]["text"] == {"format": {"type": "json_schema", **named}}


async def test_a_model_without_structured_outputs_is_sent_no_schema(
    server: ScriptedServer, connect: Connect
) -> None:
    server.script = [chat()]
    generation = await run(await connect("gpt-3.5-turbo"), schema=SCHEMA)
    assert "response_format" not in server.bodies[0]
    assert generation.request_params is not None
    assert generation.request_params["not_sent"] == ["response_format"]


async def test_fields_of_the_users_own_stand_beside_the_schema(
    server: ScriptedServer, connect: Connect
) -> None:
    server.script = [response()]
    arguments = {"extra_body": {"text": {"verbosity": "low"}, "max_output_tokens": 7}}
    await run(await connect("gpt-5.2", engine_args=arguments), schema=SCHEMA)
    body = server.bodies[0]
    assert (body["text"]["verbosity"], body["text"]["format"]["schema"]) == ("low", SCHEMA)
    assert body["max_output_tokens"] == 7


async def test_a_refused_effort_is_the_requests_error(server: ScriptedServer, connect: Connect) -> None:
    error = {
        "message": "Unsupported value: 'reasoning_effort' does not support 'max'",
        "param": "reasoning_effort",
    }
    server.script = [reply(400, {"error": error})]
    generation = await run(await connect(engine_args={"reasoning_effort": "max"}))
    assert (generation.error_kind, len(server.posts)) == ("bad_request", 1)


FAILURES: dict[str, tuple[Any, str, int, str]] = {
    "wrong key": (
        reply(401, {"error": {"message": f"Incorrect API key {KEY}"}}),
        "auth",
        1,
        "OPENAI_API_KEY",
    ),
    "forbidden": (reply(403, {"error": {"message": "no"}}), "auth", 1, "403"),
    "no such model": (
        reply(404, {"error": {"message": "The model does not exist", "code": "model_not_found"}}),
        "not_found",
        1,
        "does not exist",
    ),
    "context overflow": (
        reply(
            400,
            {
                "error": {
                    "code": "context_length_exceeded",
                    "message": "This model's maximum context length is 8192 tokens. However, your messages "
                    "resulted in 9000 tokens.",
                }
            },
        ),
        "context_length",
        1,
        "8192 tokens. However, your messages resulted in 9000 tokens: shorten the prompt",
    ),
    "filtered": (
        reply(400, {"error": {"code": "content_policy_violation", "message": "no"}}),
        "content_filter",
        1,
        "",
    ),
    "too many requests": (
        reply(429, {"error": {"message": "slow down"}}, retry_after="0"),
        "rate_limited",
        3,
        "",
    ),
    "out of quota": (
        reply(429, {"error": {"code": "insufficient_quota", "message": "pay"}}),
        "rate_limited",
        1,
        "",
    ),
    "overloaded": (reply(529, {"error": {"message": "overloaded"}}, retry_after="0"), "rate_limited", 3, ""),
    "server error": (reply(500, "<html>oops</html>"), "server_error", 3, "oops"),
    "cut short": (stream(sse(delta("AN"))), "bad_response", 3, "ended before"),
    "dropped": (stream(sse(delta("AN")), pause=0.01, abort=True), "bad_response", 3, "cut short"),
    "garbage": (stream(b"data: {nope\n\n"), "bad_response", 3, ""),
    "not the protocol": (reply(200, {"hello": "world"}), "bad_response", 3, ""),
    "error within the stream": (
        stream(sse(delta("AN"), {"error": {"type": "rate_limit_exceeded", "message": "slow"}})),
        "rate_limited",
        3,
        "slow",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_failures_are_classified(server: ScriptedServer, connect: Connect, name: str) -> None:
    handler, kind, attempts, words = FAILURES[name]
    server.script = [handler]
    generation = await run(await connect())
    assert (generation.error_kind, generation.attempts) == (kind, attempts)
    assert words in str(generation.error)
    assert KEY not in json.dumps(generation.error)
    assert "\n" not in str(generation.error)


RESPONSE_FAILURES: dict[str, tuple[Any, str]] = {
    "failed": (
        response(ending="failed", error={"code": "server_error", "message": "it broke"}),
        "server_error",
    ),
    "rate limited": (
        response(ending="failed", error={"code": "rate_limit_exceeded", "message": "slow"}),
        "rate_limited",
    ),
    "error event": (
        stream(events({"type": "error", "code": "rate_limit_exceeded", "message": "slow", "param": None})),
        "rate_limited",
    ),
    "cut short": (stream(events(text_part("AN"))), "bad_response"),
    "not the protocol": (stream(sse({"hello": "world"})), "bad_response"),
}


@pytest.mark.parametrize("name", RESPONSE_FAILURES)
async def test_failures_of_the_responses_api_are_classified(
    server: ScriptedServer, connect: Connect, name: str
) -> None:
    handler, kind = RESPONSE_FAILURES[name]
    server.script = [handler]
    generation = await run(await connect(engine_args={"api": "responses"}))
    assert (generation.error_kind, generation.attempts) == (kind, 3)


REFUSALS: dict[str, tuple[str, Any]] = {
    "chat": ("chat", stream(sse(delta(refusal="I can't help."), delta(finish="stop"), "[DONE]"))),
    "filtered on the way": (
        "chat",
        stream(sse(delta("I can't help."), delta(finish="content_filter"), "[DONE]")),
    ),
    "responses": ("responses", response(text_part("I can't help.", "refusal"))),
    "incomplete": (
        "responses",
        response(
            text_part("I can't help."),
            ending="incomplete",
            incomplete_details={"reason": "content_filter"},
        ),
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_a_refusal_is_the_models_answer(server: ScriptedServer, connect: Connect, name: str) -> None:
    api, handler = REFUSALS[name]
    server.script = [handler]
    generation = await run(await connect(engine_args={"api": api}))
    assert (generation.error, generation.model_answer) == (None, "I can't help.")
    assert generation.finish_reason == "content_filter"


@pytest.mark.parametrize(
    ("api", "handler", "finish"),
    [
        ("chat", stream(sse(delta(""), delta(finish="stop"), "[DONE]")), "stop"),
        ("responses", response(), "stop"),
        (
            "responses",
            response(ending="incomplete", incomplete_details={"reason": "max_output_tokens"}),
            "length",
        ),
    ],
)
async def test_an_empty_completion_is_an_answer_that_says_nothing(
    server: ScriptedServer, connect: Connect, api: str, handler: Any, finish: str
) -> None:
    server.script = [handler]
    generation = await run(await connect(engine_args={"api": api}))
    assert (generation.error, generation.raw_text, generation.finish_reason) == (None, "", finish)


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        ("stub", {"engine_args": {"strem": True}}, "strem"),
        ("stub", {"engine_args": {"stream": "yes"}}, "true or false"),
        ("stub", {"engine_args": {"api": "completions"}}, "responses"),
        ("stub", {"engine_args": {"extra_body": 3}}, "extra_body"),
        ("stub", {"base_url": "localhost:1"}, "http://"),
        ("o3-pro", {"engine_args": {"api": "chat"}}, "responses API only"),
        ("o3", {"engine_args": {"reasoning_effort": "none"}}, "low, medium, high"),
        ("gpt-4o", {"engine_args": {"reasoning_effort": "low"}}, "has none"),
    ],
)
async def test_wrong_settings_are_named(
    connect: Connect, model: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(EngineStartError, match=message):
        await connect(model, **settings)
