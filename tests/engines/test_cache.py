from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalray.engines.base import EngineConfig
from evalray.engines.cache import (
    cache_key,
    cached_generation,
    model_identity,
    reply_to_keep,
    request_identity,
)
from evalray.engines.openai_compatible import OpenAICompatibleEngine
from evalray.types import Generation, GenerationRequest, SamplingParams, Timeline

SERVER = EngineConfig("m", "openai-compatible", base_url="http://a/v1", engine_args={"stream": True})


def identity(config: EngineConfig) -> dict[str, Any] | None:
    return model_identity(config, OpenAICompatibleEngine.answer_args(config.engine_args))


def request(prompt: str = "2+2?", **sampling: Any) -> GenerationRequest:
    messages = ({"role": "system", "content": "s"}, {"role": "user", "content": prompt})
    return GenerationRequest("0:0:0", messages, SamplingParams(**sampling))


def key(
    config: EngineConfig = SERVER,
    asked: GenerationRequest = request(),  # noqa: B008
    epoch: int = 0,
    record: str = "r",
) -> str:
    model = identity(config)
    assert model is not None
    return cache_key(request_identity(model, asked, epoch=epoch, record_id=record))


@pytest.mark.parametrize(
    "config",
    [
        replace(SERVER, model="other"),
        replace(SERVER, engine="openai"),
        replace(SERVER, base_url="http://b/v1"),
        replace(SERVER, engine_args={"revision": "abc"}),
        replace(SERVER, engine_args={"extra_body": {"min_p": 0.1}}),
    ],
)
def test_another_model_never_answers_for_this_one(config: EngineConfig) -> None:
    assert key(config) != key()


@pytest.mark.parametrize(
    "asked",
    [
        request("2+3?"),
        request(max_tokens=1),
        request(temperature=0.1),
        request(top_p=0.9),
        request(top_k=4),
        request(stop=("x",)),
        request(seed=1),
        replace(request(), messages=({"role": "user", "content": "2+2?"},)),
        replace(request(), response_schema={"type": "object"}),
    ],
)
def test_another_request_is_another_reply(asked: GenerationRequest) -> None:
    assert key(asked=asked) != key()


def test_epochs_are_not_copies_of_each_other() -> None:
    assert key(epoch=1) != key(epoch=0)


def test_what_cannot_change_an_answer_does_not_count() -> None:
    other = replace(
        SERVER, engine_args={"stream": False}, max_concurrency=7, timeout_seconds=1.0, max_retries=0
    )
    assert key(other) == key()
    assert key(asked=replace(request(), request_id="7:1:0", timeout_seconds=1.0)) == key()


def test_records_with_one_prompt_share_a_reply_at_temperature_0_only() -> None:
    assert key(record="a") == key(record="b")
    warm = request(temperature=0.7)
    assert key(asked=warm, record="a") != key(asked=warm, record="b")


@given(st.lists(st.text(), min_size=2, max_size=2, unique=True))
def test_no_two_prompts_have_one_key(prompts: list[str]) -> None:
    assert key(asked=request(prompts[0])) != key(asked=request(prompts[1]))


def test_a_changed_model_file_is_another_model(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF1")
    config = EngineConfig("m", "llamacpp", path=str(file))
    before = key(config)
    assert key(config) == before
    os.utime(file, ns=(1, 1))
    assert key(config) != before
    file.write_bytes(b"GGUF23")
    assert key(config) != before


def test_a_changed_file_in_a_model_folder_is_another_model(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "sub" / "weights").write_bytes(b"1")
    config = EngineConfig("m", "vllm", path=str(tmp_path))
    before = key(config)
    (tmp_path / "sub" / "weights").write_bytes(b"22")
    assert key(config) != before


def test_a_model_that_cannot_be_told_from_another_has_no_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert identity(EngineConfig("m", "llamacpp", path="/no/such.gguf")) is None
    hub = EngineConfig("org/name", "vllm")
    assert identity(hub) is None
    reference = tmp_path / "models--org--name" / "refs" / "main"
    reference.parent.mkdir(parents=True)
    reference.write_text("a" * 40)
    first = key(hub)
    reference.write_text("b" * 40)
    assert key(hub) != first


def generation(**fields: Any) -> Generation:
    timeline = Timeline(sent_at=1.0, latency_seconds=2.0)
    values = {"raw_text": "4", "model_answer": "4", "finish_reason": "stop", "completion_tokens": 1}
    return Generation(**values | {"cost_usd": 0.1, "timeline": timeline, "engine_id": "m/0"} | fields)


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({}, True),
        ({"finish_reason": None}, True),
        ({"error": "refused", "error_kind": "connection"}, False),
        ({"raw_text": "", "model_answer": ""}, False),
        ({"raw_text": "<think>x</think>", "model_answer": ""}, True),
        ({"finish_reason": "length", "completion_tokens": 2048}, True),
        ({"finish_reason": "length", "completion_tokens": 100}, False),  # by the context
        ({"finish_reason": "length", "completion_tokens": None}, False),
        ({"cached": True}, False),
    ],
)
def test_only_a_whole_reply_is_kept(fields: dict[str, Any], kept: bool) -> None:
    assert (reply_to_keep(request(), generation(**fields)) is not None) is kept


def test_a_reply_from_the_cache_is_marked_and_measures_nothing() -> None:
    reply = reply_to_keep(request(), generation(reasoning="r", prompt_tokens=5))
    assert reply is not None
    found = cached_generation(reply)
    assert found.cached is True
    assert (found.raw_text, found.model_answer, found.reasoning) == ("4", "4", "r")
    assert (found.prompt_tokens, found.completion_tokens, found.attempts) == (5, 1, 0)
    assert (found.cost_usd, found.engine_id, found.timeline) == (None, "", Timeline())
