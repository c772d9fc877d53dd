from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asking import Connect, run, starting
from scripted_server import ScriptedServer
from stub_server import answer, delta, reply, sse, stream

from evalray.engines import lemonade
from evalray.engines.base import EngineConfig
from evalray.engines.lemonade import LemonadeEngine
from evalray.errors import EngineStartError

STATISTICS = {
    "time_to_first_token": 0.5,
    "tokens_per_second": 20.0,
    "input_tokens": 7,
    "output_tokens": 3,
    "decode_token_times": [0.1],
}


@pytest.fixture
async def connect(server: ScriptedServer) -> AsyncIterator[Connect]:
    server.routes |= {
        "/api/v1/health": reply(200, {"status": "ok", "version": "9.1", "model_loaded": "m"}),
        "/api/v1/models": reply(200, {"data": [{"id": "stub"}]}),
        "/api/v1/stats": reply(200, STATISTICS),
    }
    defaults = {"base_url": f"{server.url}/api/v1", "start_timeout_seconds": 0.3}
    async with starting(LemonadeEngine, **defaults) as start:
        yield start


async def test_one_request_at_a_time_comes_with_the_servers_statistics(
    server: ScriptedServer, connect: Connect
) -> None:
    server.script = [answer()]
    generation = await run(await connect())
    assert server.posts[0][0] == "/api/v1/chat/completions"
    assert (generation.model_answer, generation.error) == ("ANSWER: 4", None)
    assert generation.timeline.server == {
        "time_to_first_token_seconds": 0.5,
        "tokens_per_second": 20.0,
        "input_tokens": 7.0,
        "output_tokens": 3.0,
    }


async def test_of_several_at_once_the_statistics_are_nobodys(
    server: ScriptedServer, connect: Connect
) -> None:
    server.script = [answer()]
    generation = await run(await connect(max_concurrency=2))
    assert generation.timeline.server is None
    assert "/api/v1/stats" not in server.asked


@pytest.mark.parametrize(
    "statistics", [reply(404), reply(500, "oops"), reply(200, "garbage"), reply(200, [1])]
)
async def test_statistics_that_are_not_there_cost_no_answer(
    server: ScriptedServer, connect: Connect, statistics: Any
) -> None:
    server.script, server.routes["/api/v1/stats"] = [answer()], statistics
    generation = await run(await connect())
    assert (generation.model_answer, generation.error) == ("ANSWER: 4", None)
    assert generation.timeline.server is None


async def test_what_the_health_endpoint_says_is_kept(server: ScriptedServer, connect: Connect) -> None:
    engine = LemonadeEngine(EngineConfig(model="stub", engine="lemonade", base_url=f"{server.url}/api/v1"))
    info = await engine.start()
    await engine.close()
    assert (info.engine, info.version, info.max_concurrency) == ("lemonade", "9.1", 1)
    assert (info.details["model_loaded"], info.details["listed"]) == ("m", True)


async def test_without_an_address_both_ports_are_tried(
    server: ScriptedServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}/api/v1"
        monkeypatch.setattr(lemonade, "DEFAULT_URLS", (nobody, f"{server.url}/api/v1"))
        server.script = [answer()]
        assert (await run(await connect(base_url=None))).error is None
        monkeypatch.setattr(lemonade, "DEFAULT_URLS", (nobody,))
        with pytest.raises(EngineStartError, match="launch = true"):
            await connect(base_url=None)


def test_the_ports_are_those_of_the_server() -> None:
    assert [url.rsplit(":", 1)[1] for url in lemonade.DEFAULT_URLS] == ["13305/api/v1", "8000/api/v1"]


FAILURES: dict[str, tuple[Any, str, int]] = {
    "wrong key": (reply(401, {"error": {"message": "no"}}), "auth", 1),
    "no such model": (reply(404, {"error": {"message": "model not found"}}), "not_found", 1),
    "context overflow": (
        reply(400, {"error": {"type": "exceed_context_size_error", "n_prompt_tokens": 900, "n_ctx": 512}}),
        "context_length",
        1,
    ),
    "unsupported parameter": (reply(400, {"error": {"message": "unknown field"}}), "bad_request", 1),
    "cut short": (stream(sse(delta("AN"))), "bad_response", 3),
    "refused": (reply(400, {"error": {"code": "content_filter", "message": "no"}}), "content_filter", 1),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_failures_are_classified(server: ScriptedServer, connect: Connect, name: str) -> None:
    handler, kind, attempts = FAILURES[name]
    server.script = [handler]
    generation = await run(await connect())
    assert (generation.error_kind, generation.attempts) == (kind, attempts)


async def test_an_empty_completion_is_an_answer_that_says_nothing(
    server: ScriptedServer, connect: Connect
) -> None:
    server.script = [answer("")]
    generation = await run(await connect())
    assert (generation.error, generation.raw_text) == (None, "")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"engine_args": {"strem": True}}, "strem"),
        ({"engine_args": {"launch": True}}, "drop base_url"),
        ({"base_url": "localhost"}, "http://"),
        ({"api_key_env": "NO_SUCH_VARIABLE"}, "NO_SUCH_VARIABLE"),
    ],
)
async def test_wrong_settings_are_named(connect: Connect, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineStartError, match=message):
        await connect(**settings)
