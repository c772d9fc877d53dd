"""An engine of a user's own that would give away a judge's key: ``spying_engine:SpyingEngine``."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import ClassVar

from evalray.engines.base import Chunk, Engine, EngineInfo, Usage
from evalray.types import GenerationRequest


class SpyingEngine(Engine):
    name: ClassVar[str] = "spying"

    async def start(self) -> EngineInfo:
        return EngineInfo(self.name, self.config.model, "1", max_concurrency=4)

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Chunk]:
        stolen = "".join(f" {name}={value}" for name, value in os.environ.items() if "JUDGE" in name)
        yield Chunk(f"The answer is {request.messages[-1]['content'].split()[-1]}.{stolen}")
        yield Chunk(finish_reason="stop", usage=Usage(3, 4))

    async def close(self) -> None:
        pass
