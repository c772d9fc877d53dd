"""What every engine that speaks to a server promises, whatever the protocol."""

from __future__ import annotations

import base64
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

import pytest
from asking import SCHEMA, Connect, ask, run, starting
from scripted_server import ScriptedServer, events, lines
from stub_server import Handler, answer, delta, hang, reply, sse, stream

from evalray.engines import vendor_sdk
from evalray.engines.anthropic_api import AnthropicEngine
from evalray.engines.base import Engine, EngineConfig
from evalray.engines.failures import one_line
from evalray.engines.lemonade import LemonadeEngine
from evalray.engines.ollama import OllamaEngine
from evalray.engines.openai_api import OpenAIEngine
from evalray.engines.openai_compatible import OpenAICompatibleEngine
from evalray.engines.session import RetryPolicy, run_request, start_engine
from evalray.errors import EngineStartError

KEY = "zq7Y-kD4x.Pw_31t"
NO_RETRIES = RetryPolicy(max_retries=0)


@dataclass(frozen=True)
class Kind:
    """An engine, where its API is on a server, and what makes it start and answer there."""

    engine: type[Engine]
    path: str = "/v1"
    routes: dict[str, Handler] = field(default_factory=dict)
    answer: Handler = field(default_factory=answer)
    key_variable: str = ""
    refusal: str = ""
    """How its API words that it does not take ``temperature``."""
    schema_at: str = ""
    schema_refusal: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)

    def at(self, server: ScriptedServer, **settings: Any) -> AbstractAsyncContextManager[Connect]:
        server.routes |= self.routes
        defaults = {"base_url": f"{server.url}{self.path}", "engine_args": self.arguments}
        return starting(self.engine, **{**defaults, "start_timeout_seconds": 0.3, **settings})


_SAYS = [
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "ANSWER: 4"}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
    {"type": "message_stop"},
]
_RESPONSE = {"id": "r", "object": "response", "status": "completed", "output": []}
_OLLAMA = {"message": {"role": "assistant", "content": "ANSWER: 4"}, "done": True, "done_reason": "stop"}
KINDS = {
    "openai": Kind(
        OpenAIEngine,
        key_variable="OPENAI_API_KEY",
        refusal="Unsupported value: 'temperature' does not support 0.0 with this model.",
        schema_at="response_format",
        schema_refusal="Invalid parameter: 'response_format' of type 'json_schema' is not supported.",
    ),
    "openai responses": Kind(
        OpenAIEngine,
        answer=stream(events({"type": "response.completed", "response": _RESPONSE})),
        key_variable="OPENAI_API_KEY",
        refusal="Unsupported parameter: 'temperature' is not supported with this model.",
        schema_at="text.format",
        schema_refusal="Invalid schema for 'text.format': 'enum' is not permitted.",
        arguments={"api": "responses"},
    ),
    "anthropic": Kind(
        AnthropicEngine,
        path="",
        answer=stream(events(*_SAYS)),
        key_variable="ANTHROPIC_API_KEY",
        refusal="`temperature` is deprecated for this model.",
        schema_at="output_config.format",
        schema_refusal="output_config.format: Extra inputs are not permitted",
    ),
    "openai-compatible": Kind(
        OpenAICompatibleEngine, routes={"/v1/models": reply(200, {"data": [{"id": f"not {KEY}"}]})}
    ),
    "ollama": Kind(
        OllamaEngine,
        path="",
        routes={
            "/api/version": reply(200, {"version": f"1 {KEY}"}),
            "/api/show": reply(200, {"details": {"family": KEY * 40}}),
        },
        answer=stream(lines(_OLLAMA), content_type="application/x-ndjson"),
    ),
    "lemonade": Kind(
        LemonadeEngine,
        path="/api/v1",
        routes={
            "/api/v1/health": reply(200, {"version": f"9 {KEY}", "model_loaded": KEY}),
            "/api/v1/models": reply(200, {"data": [{"id": "stub"}]}),
        },
    ),
}
ALL = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
VENDORS = {name: kind for name, kind in KINDS.items() if kind.key_variable}
OF_VENDORS = pytest.mark.parametrize("kind", VENDORS.values(), ids=VENDORS)


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "MY_KEY"):
        monkeypatch.setenv(name, KEY)
    monkeypatch.setattr(vendor_sdk, "_PROBE_PAUSE_SECONDS", 0.001)


@pytest.fixture
async def connect(kind: Kind, server: ScriptedServer) -> AsyncIterator[Connect]:
    async with kind.at(server) as start:
        yield start


@ALL
async def test_a_redirect_is_told_and_takes_neither_prompt_nor_key_to_another_host(
    kind: Kind, server: ScriptedServer, connect: Connect
) -> None:
    other = ScriptedServer()
    await other.start()
    other.script = [kind.answer]
    server.script = [reply(307, {}, Location=f"{other.url.replace('127.0.0.1', 'localhost')}/v1")]
    try:
        generation = await run(await connect())
    finally:
        await other.stop()
    assert other.asked == []
    assert generation.error_kind == "bad_response"
    assert "redirected to" in str(generation.error)


@ALL
async def test_a_hanging_server_ends_at_the_deadline(server: ScriptedServer, connect: Connect) -> None:
    server.script = [hang]
    generation = await run(await connect(), timeout_seconds=0.1)
    assert (generation.error_kind, generation.attempts) == ("timeout", 2)


@ALL
async def test_a_server_that_goes_away_is_a_connection_error(
    server: ScriptedServer, connect: Connect
) -> None:
    engine = await connect()
    await server.stop()
    generation = await run(engine)
    assert (generation.error_kind, generation.attempts) == ("connection", 3)


@ALL
async def test_a_certificate_that_nobody_signed_stops_the_start(
    kind: Kind, connect: Connect, tls: ssl.SSLContext
) -> None:
    secure = ScriptedServer()
    await secure.start(tls)
    try:
        with pytest.raises(EngineStartError, match=r"(?i)certificate|TLS"):
            await connect(base_url=f"{secure.url}{kind.path}")
    finally:
        await secure.stop()


@OF_VENDORS
async def test_a_server_that_is_not_there_stops_the_start(kind: Kind, connect: Connect) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(EngineStartError, match="cannot be reached"):
            await connect(base_url=f"http://127.0.0.1:{taken.getsockname()[1]}{kind.path}")


@OF_VENDORS
async def test_a_missing_key_stops_the_start_before_any_request(
    kind: Kind, server: ScriptedServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(kind.key_variable)
    with pytest.raises(EngineStartError, match=kind.key_variable):
        await connect()
    with pytest.raises(EngineStartError, match="NO_SUCH_KEY"):
        await connect(api_key_env="NO_SUCH_KEY")
    assert server.asked == []


@OF_VENDORS
async def test_a_refused_key_stops_the_start(kind: Kind, server: ScriptedServer, connect: Connect) -> None:
    server.routes["/v1/models/stub"] = reply(401, {"error": {"message": f"bad key {KEY}"}})
    with pytest.raises(EngineStartError, match=kind.key_variable) as caught:
        await connect()
    assert KEY not in str(caught.value)


@OF_VENDORS
async def test_a_key_that_may_ask_the_model_and_not_about_it_is_good(
    kind: Kind, server: ScriptedServer, connect: Connect
) -> None:
    server.routes["/v1/models/stub"] = reply(403, {"error": {"message": "Missing scopes: api.model.read"}})
    server.script = [kind.answer]
    assert (await run(await connect())).error is None


@OF_VENDORS
async def test_an_unsupported_parameter_is_left_out_from_then_on_and_recorded(
    kind: Kind, server: ScriptedServer, connect: Connect
) -> None:
    server.script = [reply(400, {"error": {"message": kind.refusal}}), kind.answer]
    engine = await connect()
    first, second = await run(engine), await run(engine)
    assert (first.error, first.attempts) == (None, 1)
    assert ["temperature" in body for body in server.bodies] == [True, False, False]
    assert first.request_params is not None
    assert second.request_params is not None
    assert first.request_params["not_sent"] == second.request_params["not_sent"] == ["temperature"]


def _schemas(server: ScriptedServer, kind: Kind) -> list[bool]:
    """Of each request, whether the schema was in its place."""
    table, _, key = kind.schema_at.partition(".")
    return [table in body and (not key or key in body[table]) for body in server.bodies]


@OF_VENDORS
async def test_a_reply_is_held_to_its_schema_and_others_are_not(
    kind: Kind, server: ScriptedServer, connect: Connect
) -> None:
    server.script = [kind.answer]
    engine = await connect()
    held, free = await run(engine, schema=SCHEMA), await run(engine)
    assert (held.error, free.error) == (None, None)
    assert _schemas(server, kind) == [True, False]
    assert "'enum': ['right', 'wrong']" in str(server.bodies[0])


@OF_VENDORS
async def test_a_refused_schema_is_left_out_from_then_on_and_recorded(
    kind: Kind, server: ScriptedServer, connect: Connect
) -> None:
    server.script = [reply(400, {"error": {"message": kind.schema_refusal}}), kind.answer]
    engine = await connect()
    first, second = await run(engine, schema=SCHEMA), await run(engine, schema=SCHEMA)
    assert (first.error, first.attempts) == (None, 1)
    assert _schemas(server, kind) == [True, False, False]
    for generation in (first, second):
        assert generation.request_params is not None
        assert generation.request_params["not_sent"] == [kind.schema_at]
        assert "temperature" in generation.request_params


@OF_VENDORS
async def test_another_refusal_says_nothing_of_the_schema(
    kind: Kind, server: ScriptedServer, connect: Connect
) -> None:
    server.script = [reply(400, {"error": {"message": "your credit balance is too low"}}), kind.answer]
    engine = await connect()
    assert (await run(engine, schema=SCHEMA)).error_kind == "bad_request"
    await run(engine, schema=SCHEMA)
    assert _schemas(server, kind) == [True, True]


# -- what a server echoes of the key --

#: Cut anywhere, this is cut within the key; shifted through one period, at each of its characters.
ECHO = f"{KEY} " * 700
PERIOD = len(KEY) + 1
#: Whether the engine asks for a stream, and what it gets instead of an answer.
ECHOES: dict[str, tuple[bool, Callable[[str], Handler]]] = {
    "an error": (True, lambda text: reply(400, {"error": {"message": text}})),
    "an error that is no JSON": (True, lambda text: reply(500, text)),
    "an error within the stream": (True, lambda text: stream(sse({"error": {"message": text}}))),
    "another protocol": (False, lambda text: reply(200, {"hello": text, "message": text})),
    "another protocol within the stream": (True, lambda text: stream(sse({"hello": text}))),
    "garbage": (False, lambda text: reply(200, text)),
    "garbage for a stream": (True, lambda text: reply(200, text)),
    "garbage within the stream": (True, lambda text: stream(f"data: {text}\n\n".encode())),
    "a finish reason": (True, lambda text: stream(sse(delta("4"), delta(finish=text), "[DONE]"))),
    "a redirect": (True, lambda text: reply(302, "", Location=f"http://127.0.0.1:9/{text[:900]}")),
}


@pytest.mark.parametrize(("streams", "echo"), ECHOES.values(), ids=ECHOES)
@ALL
async def test_no_piece_of_a_key_is_kept_wherever_an_excerpt_is_cut(
    kind: Kind, server: ScriptedServer, streams: bool, echo: Callable[[str], Handler]
) -> None:
    settings: dict[str, Any] = {"api_key_env": "MY_KEY", "max_concurrency": 1}
    if kind.engine is OllamaEngine:  # it takes no key, but an address with a password
        settings = {"base_url": server.url.replace("://", f"://user:{KEY}@")}
    async with kind.at(server, engine_args={**kind.arguments, "stream": streams}, **settings) as start:
        engine = await start()
        for shift in range(PERIOD):
            server.script = [echo("a" * shift + ECHO)]
            generation = await run_request(engine, ask(), policy=NO_RETRIES)
            assert KEY[:3] not in repr(generation)


@pytest.mark.parametrize("limit", [64, 300, 500])
@pytest.mark.parametrize("text", [KEY, base64.b64encode(f"Bearer {KEY}".encode()).decode()])
def test_a_key_at_the_cut_leaves_nothing_of_itself(text: str, limit: int) -> None:
    before = ["x" * count for count in range(limit + 1)]
    # White space is folded, so that what stands far behind it is shown.
    before += [" " * count for count in range(8 * limit - len(text), 8 * limit + 1)]
    for filler in before:
        shown = one_line(filler + text, (KEY,), limit)
        assert len(shown) <= limit
        assert KEY[:3] not in shown
        assert text[12:15] not in shown


@ALL
async def test_what_an_engine_says_of_itself_holds_no_key(kind: Kind, server: ScriptedServer) -> None:
    server.routes |= kind.routes
    address = server.url.replace("://", f"://user:{KEY}@")
    config = EngineConfig(
        model="stub",
        engine=kind.engine.name,
        base_url=f"{address}{kind.path}",
        api_key_env="MY_KEY" if kind.key_variable else None,
        engine_args=kind.arguments,
        start_timeout_seconds=0.3,
    )
    engine = kind.engine(config)
    try:
        info = await start_engine(engine)
    finally:
        await engine.close()
    assert info.details["base_url"].rstrip("/") == f"{server.url}{kind.path}"
    assert KEY[:3] not in repr(info)


@ALL
async def test_why_an_engine_does_not_start_holds_no_password(kind: Kind) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://user:{KEY}@127.0.0.1:{taken.getsockname()[1]}{kind.path}"
        for base_url in (address, address.removeprefix("http://")):
            config = EngineConfig(
                model="stub", engine=kind.engine.name, base_url=base_url, start_timeout_seconds=0.1
            )
            engine = kind.engine(config)
            with pytest.raises(EngineStartError) as caught:
                await start_engine(engine)
            await engine.close()
            assert KEY[:3] not in str(caught.value)
