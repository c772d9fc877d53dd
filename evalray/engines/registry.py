"""Which engines there are.  Names only, so that listing them imports no SDK."""

from __future__ import annotations

import difflib
import importlib

from evalray.backend import InferenceBackend
from evalray.engines.base import Engine, EngineConfig
from evalray.errors import ConfigError, Problem

#: Name in suites -> ``module:class``.
ENGINES: dict[str, str] = {
    "anthropic": "evalray.engines.anthropic_api:AnthropicEngine",
    "lemonade": "evalray.engines.lemonade:LemonadeEngine",
    "llamacpp": "evalray.engines.llamacpp:LlamaCppEngine",
    "ollama": "evalray.engines.ollama:OllamaEngine",
    "openai": "evalray.engines.openai_api:OpenAIEngine",
    "openai-compatible": "evalray.engines.openai_compatible:OpenAICompatibleEngine",
    "vllm": "evalray.engines.vllm_engine:VllmEngine",
}


def engine_class(name: str) -> type[Engine]:
    """The class behind ``name``; imports its module, which still imports no SDK.

    ``module:Class`` is one of the user's own; an :class:`~evalray.backend.InferenceBackend` there is
    run by :class:`~evalray.engines.backend_engine.BackendEngine`.  Raises :class:`ConfigError` for an
    unknown name, with the nearest valid one.
    """
    if ":" in name:
        return _own_class(name)
    try:
        target = ENGINES[name]
    except KeyError:
        near = difflib.get_close_matches(name, ENGINES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(sorted(ENGINES))}"
        raise ConfigError([Problem("engine", "", f"unknown engine {name!r}", hint)]) from None
    module, _, attribute = target.partition(":")
    engine: type[Engine] = getattr(importlib.import_module(module), attribute)
    return engine


def planned_concurrency(config: EngineConfig) -> int | None:
    """Requests in flight that a replica will take, as far as that is known before it starts.

    ``None`` for a class of the user's own, which is not imported for it, and for a vLLM that decides by
    the memory it finds.
    """
    if config.max_concurrency is not None:
        return config.max_concurrency
    if config.engine == "vllm":
        given = config.engine_args.get("max_num_seqs")
        return given if isinstance(given, int) else None
    return engine_class(config.engine).default_concurrency if config.engine in ENGINES else None


def _own_class(name: str) -> type[Engine]:
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # a user's module can raise anything while it is imported
        message = f"cannot use {name}: {type(error).__name__}: {error}"
        raise ConfigError([Problem("engine", "", message, "is its folder on PYTHONPATH?")]) from error
    if isinstance(found, type) and issubclass(found, Engine):
        return found
    if isinstance(found, type) and issubclass(found, InferenceBackend):
        from evalray.engines.backend_engine import BackendEngine

        return BackendEngine
    message = f"{name} is neither an Engine nor an InferenceBackend"
    raise ConfigError([Problem("engine", "", message, "subclass one of them")])
