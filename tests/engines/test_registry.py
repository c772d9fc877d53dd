from __future__ import annotations

import subprocess
import sys

import pytest

from evalray.engines import ENGINES, engine_class
from evalray.engines.base import Engine
from evalray.errors import ConfigError


@pytest.mark.parametrize("name", ENGINES)
def test_every_registered_engine_exists_under_its_name(name: str) -> None:
    engine = engine_class(name)
    assert issubclass(engine, Engine)
    assert engine.name == name


def test_an_unknown_engine_gets_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="llamacpp"):
        engine_class("llama-cpp")


def test_listing_engines_imports_no_sdk() -> None:
    code = (
        "import sys; from evalray.engines import ENGINES, engine_class; [engine_class(n) for n in ENGINES];"
        "print([m for m in ('xllamacpp', 'aiohttp', 'openai', 'anthropic', 'httpx2', 'vllm', 'ray', 'mlflow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
