from __future__ import annotations

import importlib.util
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from evalray.engines.base import EngineConfig
from evalray.engines.openai_compatible import OpenAICompatibleEngine

# Test folders are no packages, so their helpers are loaded by path, once.
_spec = importlib.util.spec_from_file_location("stub_server", Path(__file__).with_name("stub_server.py"))
assert _spec is not None
assert _spec.loader is not None
if "stub_server" not in sys.modules:
    sys.modules["stub_server"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["stub_server"])

from stub_server import StubServer  # noqa: E402


@pytest.fixture
async def stub() -> AsyncIterator[StubServer]:
    server = StubServer()
    await server.start()
    yield server
    await server.stop()


Connect = Callable[..., Awaitable[OpenAICompatibleEngine]]


@pytest.fixture
async def connect(stub: StubServer) -> AsyncIterator[Connect]:
    """Start an ``openai-compatible`` engine on the stub; closed at the end of the test."""
    started: list[OpenAICompatibleEngine] = []

    async def start(**settings: Any) -> OpenAICompatibleEngine:
        settings = {"base_url": stub.url, "max_concurrency": 4, "start_timeout_seconds": 0.3, **settings}
        engine = OpenAICompatibleEngine(EngineConfig(model="stub", engine="openai-compatible", **settings))
        await engine.start()
        started.append(engine)
        return engine

    yield start
    for engine in started:
        await engine.close()
