"""Which engines there are.  Names only, so that listing them imports no SDK."""

from __future__ import annotations

import difflib
import importlib

from evalray.engines.base import Engine
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

    Raises :class:`ConfigError` for an unknown name, with the nearest valid one.
    """
    try:
        target = ENGINES[name]
    except KeyError:
        near = difflib.get_close_matches(name, ENGINES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(sorted(ENGINES))}"
        raise ConfigError([Problem("engine", "", f"unknown engine {name!r}", hint)]) from None
    module, _, attribute = target.partition(":")
    engine: type[Engine] = getattr(importlib.import_module(module), attribute)
    return engine
