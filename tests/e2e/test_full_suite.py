"""Three models of three providers on four benchmarks, as OpenJarvis's ``full-suite.toml`` has them, against
local servers that stand in for Ollama, OpenAI and vLLM; the judge is gpt-4o on the one for OpenAI."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

_ROOT = Path(__file__).resolve().parents[2]
_KEY = "sk-full-suite-0123456789abcdef0123456789"
_SUITE = """
[meta]
name = "full-suite-v1"
description = "Evaluate all benchmarks against production models"
[defaults]
temperature = 0.0
max_tokens = 2048
[judge]
model = "gpt-4o"
temperature = 0.0
max_tokens = 1024
engine = "openai"
base_url = "{openai}/v1"
[run]
max_workers = 4
output_dir = "results/"
seed = 42
[[models]]
name = "qwen3:8b"
engine = "ollama"
temperature = 0.3
max_tokens = 4096
base_url = "{ollama}"
[[models]]
name = "gpt-4o"
provider = "openai"
engine = "openai"
base_url = "{openai}/v1"
engine_args = {{ api = "responses" }}
[[models]]
name = "llama3:70b"
engine = "vllm"
temperature = 0.1
base_url = "{vllm}/v1"
[[benchmarks]]
name = "supergpqa"
backend = "jarvis-direct"
max_samples = 200
split = "train"
data = "sample"
[[benchmarks]]
name = "gaia"
backend = "jarvis-agent"
agent = "orchestrator"
tools = ["file_read", "calculator"]
max_samples = 50
judge_model = "claude-sonnet-4-20250514"
data = "sample"
[[benchmarks]]
name = "frames"
backend = "jarvis-direct"
max_samples = 100
data = "sample"
[[benchmarks]]
name = "wildchat"
backend = "jarvis-direct"
max_samples = 150
temperature = 0.7
data = "sample"
"""
_MODELS = ("qwen3:8b", "gpt-4o", "llama3:70b")


@pytest.fixture
def providers() -> Iterator[dict[str, Any]]:
    spec = importlib.util.spec_from_file_location(
        "provider_stubs", Path(__file__).with_name("provider_stubs.py")
    )
    assert spec is not None
    assert spec.loader is not None
    stubs = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = stubs  # dataclasses look their module up
    spec.loader.exec_module(stubs)
    provider = stubs.provider
    with ExitStack() as stack:
        yield {
            "ollama": stack.enter_context(provider("/api/version", "/api/show", "/api/chat")),
            "openai": stack.enter_context(
                provider("/v1/models/gpt-4o", "/v1/chat/completions", "/v1/responses")
            ),
            "vllm": stack.enter_context(provider("/v1/models", "/v1/chat/completions")),
        }


def test_the_full_suite_runs_on_servers_that_stand_in_for_each_provider(
    tmp_path: Path, providers: dict[str, Any]
) -> None:
    roots = {name: stub.root for name, stub in providers.items()}
    (tmp_path / "suite.toml").write_text(_SUITE.format(**roots))
    ambient = ("RAY_ADDRESS", "MLFLOW_TRACKING_URI", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL")
    environment = {name: value for name, value in os.environ.items() if name not in ambient}
    done = subprocess.run(
        [sys.executable, "-m", "evalray", "run", "-c", "suite.toml", "--json"],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(_ROOT), "OPENAI_API_KEY": _KEY},
        capture_output=True,
        text=True,
        timeout=280,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 4, done.stderr
    report = json.loads(done.stdout)
    runs = {(run["model"], run["benchmark"]): run for run in report["runs"]}
    assert len(runs) == 12

    for model in _MODELS:
        assert runs[model, "gaia"]["status"] == "unsupported"
        assert "jarvis-agent" in runs[model, "gaia"]["reason"]
        for benchmark, samples, judge_calls in (
            ("supergpqa", 4, None),
            ("frames", 3, 3),
            ("wildchat", 3, 6),
        ):
            run = runs[model, benchmark]
            assert run["status"] == "complete", run
            summary = json.loads((tmp_path / run["summary"]).read_text())
            assert (summary["planned_samples"], summary["scored_samples"]) == (samples, samples)
            assert (summary["judge_calls"] or None) == judge_calls
        for judged in ("frames", "wildchat"):  # the judge is for qwen3 alone
            assert runs[model, judged]["accuracy"] == (1.0 if model == "qwen3:8b" else 0.0)
    assert {runs[model, "supergpqa"]["accuracy"] for model in _MODELS} == {0.25}, "the same letter every time"

    ollama, openai, vllm = providers["ollama"], providers["openai"], providers["vllm"]
    told = [
        (body["options"]["temperature"], body["options"]["num_predict"])
        for body in ollama.bodies("/api/chat")
    ]
    assert sorted(told) == [(0.3, 4096)] * 7 + [(0.7, 4096)] * 3
    answers = openai.bodies("/v1/responses")
    assert sorted(body["temperature"] for body in answers) == [0.0] * 7 + [0.7] * 3
    served = vllm.bodies("/v1/chat/completions")
    assert sorted(body["temperature"] for body in served) == [0.1] * 7 + [0.7] * 3
    assert {body["model"] for body in served} == {"llama3:70b"}
    verdicts = openai.bodies("/v1/chat/completions")
    assert len(verdicts) == 3 * (3 + 2 * 3)
    asked = {
        (b["model"], b["temperature"], b.get("max_completion_tokens") or b["max_tokens"]) for b in verdicts
    }
    assert asked == {("gpt-4o", 0.0, 1024)}

    assert {headers["authorization"] for _, headers, _ in openai.asked} == {f"Bearer {_KEY}"}
    for elsewhere in (ollama, vllm):
        assert not any(_KEY in value for _, headers, _ in elsewhere.asked for value in headers.values())
    assert _KEY not in done.stdout + done.stderr
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert _KEY.encode() not in file.read_bytes(), file
