from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from evalray.backend import InferenceBackend
from evalray.engines import EngineConfig, engine_class, run_request
from evalray.engines.backend_engine import BackendEngine
from evalray.errors import ConfigError, EngineStartError
from evalray.types import Generation, GenerationRequest, SamplingParams

_MODULE = """
from evalray.backend import InferenceBackend

class Echo(InferenceBackend):
    backend_id = "echo"
    def __init__(self, prefix=""):
        self.prefix = prefix
    def generate(self, prompt, **more):
        return prompt
    def generate_full(self, prompt, *, model, system="", temperature=0.0, max_tokens=2048):
        if prompt == "fail":
            raise OSError("no route")
        if prompt == "odd":
            return "text"
        return {"content": f"{self.prefix}{system}|{prompt}", "usage": {"prompt_tokens": 4}, "cost_usd": 0.5}

class Neither:
    pass
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "echo_backend.py").write_text(_MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("echo_backend", None)


async def ask(config: EngineConfig, *messages: dict[str, str]) -> Generation:
    engine = engine_class(config.engine)(config)
    await engine.start()
    try:
        return await run_request(engine, GenerationRequest("1", messages, SamplingParams()))
    finally:
        await engine.close()


def config(engine: str = "echo_backend:Echo", **more: Any) -> EngineConfig:
    return EngineConfig("m", engine, max_retries=0, **more)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


async def test_a_class_named_in_a_suite_is_built_with_its_arguments_and_asked() -> None:
    got = await ask(
        config(engine_args={"prefix": ">"}), {"role": "system", "content": "be brief"}, user("hello")
    )
    assert (got.error, got.model_answer) == (None, ">be brief|hello")
    assert (got.prompt_tokens, got.completion_tokens, got.cost_usd) == (4, None, 0.5)
    assert got.timeline.ttft_seconds is None


@pytest.mark.parametrize(("prompt", "message"), [("fail", "OSError: no route"), ("odd", "no dictionary")])
async def test_what_a_backend_raises_is_that_samples_error(prompt: str, message: str) -> None:
    got = await ask(config(), user(prompt))
    assert message in str(got.error)


async def test_an_object_travels_as_the_payload() -> None:
    backend = engine_payload("<")
    got = await ask(config("evalray.engines.backend_engine:BackendEngine", payload=backend), user("x"))
    assert got.model_answer == "<|x"


def engine_payload(prefix: str) -> bytes:
    from importlib import import_module

    built: InferenceBackend = import_module("echo_backend").Echo(prefix)
    return pickle.dumps(built)


async def test_arguments_that_do_not_fit_stop_the_start() -> None:
    with pytest.raises(EngineStartError, match="no_such"):
        await BackendEngine(config(engine_args={"no_such": 1})).start()


@pytest.mark.parametrize("name", ["echo_backend:Neither", "echo_backend:Missing", "no_such_module:X"])
def test_a_name_that_is_no_engine_is_said(name: str) -> None:
    with pytest.raises(ConfigError, match=name.split(":")[1] if "no_such" not in name else "no_such_module"):
        engine_class(name)
