from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asking import SCHEMA, Connect, run, starting
from scripted_server import ScriptedServer, events
from stub_server import reply, stream

from evalray.engines.anthropic_api import AnthropicEngine
from evalray.errors import EngineStartError

KEY = "sk-ant-very-secret"


def start_event(**usage: int) -> dict[str, Any]:
    counts = {"input_tokens": 7, "output_tokens": 1, **usage}
    message = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "stub",
        "usage": counts,
    }
    return {"type": "message_start", "message": message}


def block(text: str, kind: str = "text", index: int = 0) -> list[dict[str, Any]]:
    empty = {"type": kind, kind: ""}
    piece = {"type": f"{kind}_delta", kind: text}
    return [
        {"type": "content_block_start", "index": index, "content_block": empty},
        {"type": "content_block_delta", "index": index, "delta": piece},
        {"type": "content_block_stop", "index": index},
    ]


def end_events(reason: str = "end_turn", **usage: Any) -> list[dict[str, Any]]:
    return [
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": {"output_tokens": 3, **usage},
        },
        {"type": "message_stop"},
    ]


def answer(text: str = "ANSWER: 4", reason: str = "end_turn") -> Any:
    return stream(events(start_event(), *block(text), *end_events(reason)))


def error(status: int, kind: str, message: str = "no", **headers: str) -> Any:
    return reply(status, {"type": "error", "error": {"type": kind, "message": message}}, **headers)


@pytest.fixture
async def connect(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Connect]:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    async with starting(AnthropicEngine, base_url=server.url) as start:
        yield start


async def test_an_answer_comes_with_reasoning_counts_and_cost(
    server: ScriptedServer, connect: Connect
) -> None:
    server.script = [
        stream(
            events(
                start_event(input_tokens=10, cache_read_input_tokens=20, cache_creation_input_tokens=40),
                {"type": "ping"},
                *block("2+2", "thinking"),
                *block("ANSWER: 4", index=1),
                *end_events(output_tokens=50, output_tokens_details={"thinking_tokens": 30}),
            )
        )
    ]
    generation = await run(await connect("claude-sonnet-4-6"))
    assert (generation.model_answer, generation.reasoning) == ("ANSWER: 4", "2+2")
    assert (generation.finish_reason, generation.error) == ("stop", None)
    assert (generation.prompt_tokens, generation.completion_tokens) == (70, 50)
    assert (generation.cached_tokens, generation.reasoning_tokens) == (20, 30)
    assert generation.cost_usd == pytest.approx((10 * 3 + 20 * 0.3 + 40 * 3.75 + 50 * 15) / 1e6)
    assert generation.timeline.ttft_seconds is not None


async def test_a_model_that_samples_is_asked_under_the_version_that_lets_it(
    server: ScriptedServer, connect: Connect
) -> None:
    server.script = [answer()]
    generation = await run(
        await connect("claude-haiku-4-5"), system="Be brief.", top_p=0.9, seed=3, stop=("x", "\n")
    )
    path, headers, body = server.posts[0]
    assert (path, headers["anthropic-version"]) == ("/v1/messages", "2023-06-01")
    assert body == {
        "model": "claude-haiku-4-5",
        "system": "Be brief.",
        "messages": [{"role": "user", "content": "What is 2 plus 2?"}],
        "max_tokens": 16,
        "temperature": 0.0,
        "stop_sequences": ["x"],
        "stream": True,
    }
    assert generation.request_params is not None
    assert generation.request_params["not_sent"] == ["seed", "top_p"]


async def test_a_model_that_does_not_sample_is_sent_no_sampling_parameter(
    server: ScriptedServer, connect: Connect
) -> None:
    server.script = [answer()]
    engine = await connect("claude-opus-5-5", engine_args={"reasoning_effort": "low"})
    generation = await run(engine, top_k=5)
    _, headers, body = server.posts[0]
    assert headers["anthropic-version"] != "2023-06-01"
    assert body.keys() == {"model", "messages", "max_tokens", "stream", "output_config"}
    assert body["output_config"] == {"effort": "low"}
    assert generation.request_params == {
        "max_tokens": 16,
        "output_config": {"effort": "low"},
        "not_sent": ["temperature", "top_k"],
    }


async def test_with_thinking_no_sampling_parameter_is_sent(server: ScriptedServer, connect: Connect) -> None:
    server.script = [answer()]
    engine = await connect("claude-haiku-4-5", engine_args={"thinking_budget": 1024})
    generation = await run(engine, max_tokens=2048)
    assert server.bodies[0]["thinking"] == {"type": "enabled", "budget_tokens": 1024}
    assert "temperature" not in server.bodies[0]
    assert generation.request_params is not None
    assert generation.request_params["not_sent"] == ["temperature"]


async def test_a_budget_that_leaves_no_answer_is_not_sent(server: ScriptedServer, connect: Connect) -> None:
    engine = await connect("claude-haiku-4-5", engine_args={"thinking_budget": 1024})
    generation = await run(engine, max_tokens=1024)
    assert (generation.error_kind, server.posts) == ("bad_request", [])
    assert "max_tokens" in str(generation.error)


async def test_a_schema_goes_beside_the_effort(server: ScriptedServer, connect: Connect) -> None:
    server.script = [answer()]
    engine = await connect("claude-opus-4-6", engine_args={"reasoning_effort": "low"})
    generation = await run(engine, schema=SCHEMA)
    config = {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}}
    assert server.bodies[0]["output_config"] == config
    assert generation.request_params is not None
    assert generation.request_params["output_config"] == config


@pytest.mark.parametrize(
    ("model", "supported", "sent"),
    [
        ("claude-haiku-4-5", None, True),
        ("claude-haiku-4-5", True, True),
        ("claude-haiku-4-5", False, False),
        ("claude-3-5-haiku-20241022", None, False),
        ("claude-opus-4-1", None, False),
        ("claude-opus-5-5", None, True),
    ],
)
async def test_a_schema_is_sent_where_the_model_takes_one(
    server: ScriptedServer, connect: Connect, model: str, supported: bool | None, sent: bool
) -> None:
    if supported is not None:
        capabilities = {"structured_outputs": {"supported": supported}}
        server.routes[f"/v1/models/{model}"] = reply(200, {"id": model, "capabilities": capabilities})
    server.script = [answer()]
    generation = await run(await connect(model), schema=SCHEMA)
    assert ("output_config" in server.bodies[0]) == sent
    assert generation.request_params is not None
    assert ("output_config.format" in generation.request_params.get("not_sent", [])) == (not sent)


async def test_without_streaming_the_answer_is_the_same(server: ScriptedServer, connect: Connect) -> None:
    content = [{"type": "thinking", "thinking": "2+2", "signature": "s"}, {"type": "text", "text": "4"}]
    usage = {"input_tokens": 7, "output_tokens": 3}
    message = {"id": "m", "type": "message", "role": "assistant", "content": content, "model": "stub"}
    server.script = [reply(200, {**message, "stop_reason": "max_tokens", "usage": usage})]
    generation = await run(await connect(engine_args={"stream": False}))
    assert (generation.model_answer, generation.reasoning, generation.finish_reason) == ("4", "2+2", "length")
    assert (generation.completion_tokens, generation.timeline.ttft_seconds) == (3, None)
    assert generation.cost_usd is None


FAILURES: dict[str, tuple[Any, str, int, str]] = {
    "wrong key": (error(401, "authentication_error", f"invalid key {KEY}"), "auth", 1, "ANTHROPIC_API_KEY"),
    "no such model": (error(404, "not_found_error", "model: nonesuch"), "not_found", 1, "nonesuch"),
    "context overflow": (
        error(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
        "context_length",
        1,
        "210000 tokens > 200000 maximum: shorten the prompt, lower max_tokens or take a model",
    ),
    "out of credit": (
        error(400, "invalid_request_error", "Your credit balance is too low"),
        "bad_request",
        1,
        "",
    ),
    "too many requests": (error(429, "rate_limit_error", retry_after="0"), "rate_limited", 3, ""),
    "overloaded": (error(529, "overloaded_error", retry_after="0"), "rate_limited", 3, ""),
    "server error": (error(500, "api_error", "oops"), "server_error", 3, "oops"),
    "cut short": (stream(events(start_event(), *block("AN"))), "bad_response", 3, "ended before"),
    "dropped": (
        stream(events(start_event(), *block("AN")), pause=0.01, abort=True),
        "bad_response",
        3,
        "cut short",
    ),
    "garbage": (stream(b"event: message_start\ndata: {nope\n\n"), "bad_response", 3, ""),
    "not the protocol": (reply(200, {"hello": "world"}), "bad_response", 3, ""),
    "overloaded within the stream": (
        stream(
            events(
                start_event(),
                {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            )
        ),
        "rate_limited",
        3,
        "Overloaded",
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


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
    ],
)
async def test_stop_reasons_have_the_fields_own_names(
    server: ScriptedServer, connect: Connect, reason: str, finish: str
) -> None:
    server.script = [answer("Well.", reason)]
    generation = await run(await connect())
    assert (generation.error, generation.model_answer, generation.finish_reason) == (None, "Well.", finish)


async def test_an_empty_completion_is_an_answer_that_says_nothing(
    server: ScriptedServer, connect: Connect
) -> None:
    server.script = [stream(events(start_event(), *end_events("refusal")))]
    generation = await run(await connect())
    assert (generation.error, generation.raw_text, generation.finish_reason) == (None, "", "content_filter")


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
async def test_an_address_may_end_in_v1_or_not(server: ScriptedServer, connect: Connect, suffix: str) -> None:
    server.script = [answer()]
    assert (await run(await connect(base_url=server.url + suffix))).error is None
    assert server.posts[0][0] == "/v1/messages"


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        ("stub", {"strem": True}, "strem"),
        ("stub", {"thinking_budget": 100}, "1024"),
        ("stub", {"thinking_budget": 2048, "thinking": "adaptive"}, "not both"),
        ("stub", {"thinking": "deep"}, "adaptive"),
        ("claude-opus-5", {"thinking_budget": 2048}, "reasoning_effort"),
        ("claude-sonnet-4-5", {"thinking": "adaptive"}, "thinking_budget"),
        ("claude-haiku-4-5", {"reasoning_effort": "low"}, "has none"),
    ],
)
async def test_wrong_settings_are_named(
    connect: Connect, model: str, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(EngineStartError, match=message):
        await connect(model, engine_args=arguments)
