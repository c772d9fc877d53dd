from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asking import Connect, ask, run, starting
from scripted_server import ScriptedServer, lines
from stub_server import hang, reply, stream

from evalray.engines.ollama import OllamaEngine
from evalray.engines.prompt_length import expected_tokens, is_shortened
from evalray.errors import EngineStartError

NDJSON = "application/x-ndjson"


def said(text: str = "", **message: str) -> dict[str, Any]:
    return {"model": "stub", "message": {"role": "assistant", "content": text, **message}, "done": False}


def done(reason: str = "stop", **fields: Any) -> dict[str, Any]:
    counts = {
        "total_duration": 3_000_000_000,
        "load_duration": 1_000_000_000,
        "prompt_eval_count": 7,
        "prompt_eval_duration": 500_000_000,
        "eval_count": 3,
        "eval_duration": 250_000_000,
    }
    return {**said(), "done": True, "done_reason": reason, **counts, **fields}


def ndjson(*payloads: dict[str, Any], **how: Any) -> Any:
    return stream(*(lines(payload) for payload in payloads), content_type=NDJSON, **how)


def answer(text: str = "ANSWER: 4", reason: str = "stop", **fields: Any) -> Any:
    return ndjson(said(text), done(reason, **fields))


@pytest.fixture
async def connect(server: ScriptedServer) -> AsyncIterator[Connect]:
    shown = {
        "details": {"family": "qwen3", "quantization_level": "Q4_K_M"},
        "model_info": {"qwen3.context_length": 40960},
        "capabilities": ["completion"],
    }
    server.routes["/api/version"] = reply(200, {"version": "0.32.9"})
    server.routes["/api/show"] = reply(200, shown)
    defaults = {"base_url": server.url, "context_tokens": 1000, "start_timeout_seconds": 0.3}
    async with starting(OllamaEngine, **defaults) as start:
        yield start


async def test_an_answer_comes_with_counts_and_the_servers_durations_in_seconds(
    server: ScriptedServer, connect: Connect
) -> None:
    server.script = [ndjson(said("ANS"), said("WER: 4"), done())]
    generation = await run(await connect())
    assert (generation.model_answer, generation.finish_reason) == ("ANSWER: 4", "stop")
    assert (generation.prompt_tokens, generation.completion_tokens) == (7, 3)
    assert generation.timeline.server == {
        "total_duration_seconds": 3.0,
        "load_duration_seconds": 1.0,
        "prompt_eval_duration_seconds": 0.5,
        "eval_duration_seconds": 0.25,
    }
    assert generation.timeline.ttft_seconds is not None


async def test_the_context_is_set_and_shortening_is_off(server: ScriptedServer, connect: Connect) -> None:
    server.script = [answer()]
    arguments = {"keep_alive": "1h", "think": False, "options": {"min_p": 0.05}}
    engine = await connect(engine_args=arguments)
    await run(engine, system="Be brief.", top_p=0.9, top_k=5, seed=7, stop=("x",), temperature=0.5)
    path, _, body = server.posts[0]
    assert path == "/api/chat"
    assert body == {
        "model": "stub",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What is 2 plus 2?"},
        ],
        "stream": True,
        "truncate": False,
        "shift": False,
        "keep_alive": "1h",
        "think": False,
        "options": {
            "num_ctx": 1000,
            "num_predict": 16,
            "temperature": 0.5,
            "top_p": 0.9,
            "top_k": 5,
            "seed": 7,
            "stop": ["x"],
            "min_p": 0.05,
        },
    }


async def test_the_context_is_never_more_than_the_models(server: ScriptedServer, connect: Connect) -> None:
    server.routes["/api/show"] = reply(200, {"model_info": {"llama.context_length": 512}})
    server.script = [answer()]
    await run(await connect())
    assert server.bodies[0]["options"]["num_ctx"] == 512


async def test_thinking_is_kept_apart_and_known_beforehand(server: ScriptedServer, connect: Connect) -> None:
    server.routes["/api/show"] = reply(200, {"capabilities": ["completion", "thinking"]})
    server.script = [ndjson(said(thinking="2+2"), said("4"), done())]
    generation = await run(await connect(), stop=("2",))
    assert (generation.model_answer, generation.reasoning) == ("4", "2+2")
    assert "stop" not in server.bodies[0]["options"]


async def test_a_judges_schema_is_sent_as_the_format(server: ScriptedServer, connect: Connect) -> None:
    schema = {"type": "object", "properties": {"verdict": {"enum": ["yes", "no"]}}}
    server.script = [answer(), answer()]
    engine = await connect()
    await run(engine, schema=schema)
    await run(engine)
    assert [body.get("format") for body in server.bodies] == [schema, None]


async def test_without_streaming_nothing_is_claimed_about_the_first_token(
    server: ScriptedServer, connect: Connect
) -> None:
    message = {"message": {"role": "assistant", "content": "4"}}
    server.script = [reply(200, {**done("length"), **message})]
    generation = await run(await connect(engine_args={"stream": False}))
    assert (generation.model_answer, generation.finish_reason) == ("4", "length")
    assert generation.timeline.ttft_seconds is None


@pytest.mark.parametrize(
    ("count", "expected", "num_ctx", "shortened"),
    [
        (7, 8, 4096, False),
        (4096, 4100, 4096, True),
        (4095, 4000, 4096, False),
        (2050, 7900, 4096, True),
        (2048, 4096, 4096, True),
        (2050, 2060, 4096, False),
        (2500, 7900, 4096, False),
        (12, 3900, 4096, False),
    ],
)
def test_a_prompt_is_shortened_where_the_count_says_so(
    count: int, expected: int, num_ctx: int, shortened: bool
) -> None:
    assert is_shortened(count, expected, num_ctx) == shortened


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [("", 0, 5), ("word " * 400, 400, 600), ("漢字" * 200, 250, 450), ("слово " * 100, 150, 400)],
)
def test_the_length_of_a_prompt_is_guessed_in_any_script(text: str, low: int, high: int) -> None:
    assert low <= expected_tokens(ask(text)) <= high


@pytest.mark.parametrize("count", [501, 1000])
async def test_a_shortened_prompt_is_an_error_with_both_counts(
    server: ScriptedServer, connect: Connect, count: int
) -> None:
    server.script = [answer(prompt_eval_count=count)]
    generation = await run(await connect(), "word " * 1500, system="Be brief.")
    assert (generation.error_kind, generation.attempts) == ("context_length", 1)
    assert f"kept {count} tokens" in str(generation.error)
    assert "about 1877" in str(generation.error)
    assert "num_ctx is 1000: raise engine_args.context_tokens" in str(generation.error)


async def test_a_cached_prompt_is_no_error_and_its_length_not_measured(
    server: ScriptedServer, connect: Connect
) -> None:
    counts = done(prompt_eval_count=5)
    without = {key: value for key, value in counts.items() if key != "prompt_eval_count"}
    server.script = [ndjson(said("4"), counts), ndjson(said("4"), without)]
    engine = await connect()
    for _ in range(2):
        generation = await run(engine, "word " * 300)
        assert (generation.error, generation.prompt_tokens) == (None, None)


FAILURES: dict[str, tuple[Any, str, int, str]] = {
    "no such model": (reply(404, {"error": "model 'stub' not found"}), "not_found", 1, "ollama pull stub"),
    "context overflow": (
        reply(400, {"error": "input length exceeds the context length"}),
        "context_length",
        1,
        "num_ctx 1000): raise engine_args.context_tokens",
    ),
    "context overflow in the stream": (
        ndjson({"error": "prompt too long; exceeded max context length by 12 tokens", "status": 400}),
        "context_length",
        1,
        "by 12 tokens",
    ),
    "wrong key": (reply(401, {"error": "unauthorized"}), "auth", 1, "unauthorized"),
    "unsupported parameter": (
        reply(400, {"error": '"stub" does not support thinking'}),
        "bad_request",
        1,
        "thinking",
    ),
    "busy": (reply(503, {"error": "server busy, please try again"}), "server_error", 3, "busy"),
    "runner died": (ndjson(said("AN"), {"error": "llama runner exited"}), "server_error", 3, "runner"),
    "cut short": (ndjson(said("AN")), "bad_response", 3, "ended before"),
    "dropped": (ndjson(said("AN"), pause=0.01, abort=True), "connection bad_response", 3, ""),
    "garbage": (stream(b"<html>\n", content_type=NDJSON), "bad_response", 3, "not JSON"),
    "no objects": (stream(b"[1]\n", content_type=NDJSON), "bad_response", 3, "not Ollama"),
    "not the protocol": (
        stream(b'{"message": "hi"}\n', content_type=NDJSON),
        "bad_response",
        3,
        "not Ollama",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_failures_are_classified(server: ScriptedServer, connect: Connect, name: str) -> None:
    handler, kinds, attempts, words = FAILURES[name]
    server.script = [handler]
    generation = await run(await connect())
    assert str(generation.error_kind) in kinds.split()
    assert generation.attempts == attempts
    assert words in str(generation.error)


async def test_an_empty_completion_is_an_answer_that_says_nothing(
    server: ScriptedServer, connect: Connect
) -> None:
    server.script = [ndjson(done())]
    generation = await run(await connect())
    assert (generation.error, generation.raw_text, generation.finish_reason) == (None, "", "stop")


async def test_a_line_cut_anywhere_is_put_together_again(server: ScriptedServer, connect: Connect) -> None:
    whole = lines(said("ANSWER: é"), done())
    server.script = [stream(*(whole[i : i + 7] for i in range(0, len(whole), 7)), content_type=NDJSON)]
    assert (await run(await connect())).model_answer == "ANSWER: é"


async def test_a_long_description_of_a_model_is_read_to_its_end(
    server: ScriptedServer, connect: Connect
) -> None:
    shown = lines({"license": "x" * 200_000, "model_info": {"llama.context_length": 512}})
    pieces = [shown[at : at + 50_000] for at in range(0, len(shown), 50_000)]
    server.routes["/api/show"] = stream(*pieces, content_type="application/json", pause=0.01)
    engine = await connect()
    assert engine._num_ctx == 512


async def test_a_missing_model_says_how_to_get_it(server: ScriptedServer, connect: Connect) -> None:
    server.routes["/api/show"] = reply(404, {"error": "model 'stub' not found"})
    with pytest.raises(EngineStartError, match=r"ollama pull stub.*pull = true"):
        await connect()


def _missing_until_pulled(server: ScriptedServer, pulling: Any) -> None:
    async def show(request: Any) -> Any:
        there = "/api/pull" in server.asked
        return await (reply(200, {}) if there else reply(404, {"error": "not found"}))(request)

    server.routes |= {"/api/show": show, "/api/pull": pulling}


async def test_a_missing_model_is_fetched_on_request(server: ScriptedServer, connect: Connect) -> None:
    _missing_until_pulled(
        server,
        ndjson({"status": "pulling", "completed": 5, "total": 10}, {"status": "success"}),
    )
    server.script = [answer()]
    assert (await run(await connect(engine_args={"pull": True}))).error is None


@pytest.mark.parametrize(
    ("pulling", "message"),
    [
        (ndjson({"status": "pulling"}, {"error": "pull model manifest: file does not exist"}), "manifest"),
        (ndjson({"status": "pulling", "completed": 5, "total": 10}), r"ended early \(pulling 50 %\)"),
        (reply(500, {"error": "disk full"}), "disk full"),
        (hang, "pull_timeout_seconds"),
    ],
)
async def test_a_fetch_that_fails_says_why(
    server: ScriptedServer, connect: Connect, pulling: Any, message: str
) -> None:
    _missing_until_pulled(server, pulling)
    with pytest.raises(EngineStartError, match=message):
        await connect(engine_args={"pull": True, "pull_timeout_seconds": 0.2})


async def test_a_server_that_is_not_there_says_what_to_do(connect: Connect) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(EngineStartError, match=r"ollama serve.*launch = true"):
            await connect(base_url=f"http://127.0.0.1:{taken.getsockname()[1]}")


async def test_another_kind_of_server_is_told_from_ollama(server: ScriptedServer, connect: Connect) -> None:
    server.routes["/api/version"] = reply(404, "nginx")
    with pytest.raises(EngineStartError, match="correct base_url"):
        await connect()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"engine_args": {"strem": True}}, "strem"),
        ({"engine_args": {"num_ctx": "big"}}, "num_ctx"),
        ({"engine_args": {"think": 3}}, "think"),
        ({"engine_args": {"launch": True}}, "drop base_url"),
        ({"engine_args": {"launch": "yes"}}, "true or false"),
        ({"engine_args": {"options": 3}}, "options"),
        ({"base_url": "localhost"}, "http://"),
    ],
)
async def test_wrong_settings_are_named(connect: Connect, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineStartError, match=message):
        await connect(**settings)
