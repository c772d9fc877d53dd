"""A backend of one's own as an engine: a class, or a pickled object, with one blocking call.

Calls run in threads, ``max_concurrency`` at once (4 by default, as in OpenJarvis).  Whatever a call raises is
that sample's error.  A reply comes in one piece, so there is no time to its first token.
"""

from __future__ import annotations

import importlib
import pickle
from collections.abc import AsyncIterator
from typing import Any, ClassVar

from evalray.backend import InferenceBackend
from evalray.engines.base import Chunk, Engine, EngineConfig, EngineInfo, Usage
from evalray.engines.figures import count_of, measure_of
from evalray.errors import EngineStartError, RequestError
from evalray.threads import in_thread
from evalray.types import GenerationRequest


class BackendEngine(Engine):
    """Hosts an :class:`~evalray.backend.InferenceBackend`: ``config.payload``, or the class that
    ``config.engine`` names, built with ``engine_args``."""

    name: ClassVar[str] = "backend"
    default_concurrency: ClassVar[int] = 4

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._backend: InferenceBackend | None = None

    async def start(self) -> EngineInfo:
        try:
            self._backend = await in_thread(self._build)
        except Exception as error:  # a user's constructor can raise anything
            raise EngineStartError(
                f"the backend cannot be built: {type(error).__name__}: {error}; "
                "its module has to be importable on every node (PYTHONPATH)"
            ) from error
        if not isinstance(self._backend, InferenceBackend):
            raise EngineStartError(f"{type(self._backend).__name__} is no InferenceBackend: subclass it")
        return EngineInfo(
            engine=self.name,
            model=self.config.model,
            max_concurrency=self.config.max_concurrency or self.default_concurrency,
            details={"backend": getattr(self._backend, "backend_id", type(self._backend).__name__)},
        )

    def _build(self) -> Any:
        if self.config.payload is not None:
            return pickle.loads(self.config.payload)
        module, _, attribute = self.config.engine.partition(":")
        return getattr(importlib.import_module(module), attribute)(**self.config.engine_args)

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Chunk]:
        backend = self._backend
        if backend is None:
            raise RequestError("engine", "the engine is closed")
        system = "\n\n".join(m["content"] for m in request.messages if m["role"] == "system")
        turns = [m for m in request.messages if m["role"] != "system"]
        if len(turns) == 1:
            prompt = turns[0]["content"]
        else:  # a backend takes one text: worked examples become a transcript
            prompt = "\n\n".join(f"{m['role']}: {m['content']}" for m in turns)
        sampling = request.sampling

        def call() -> dict[str, Any]:
            return backend.generate_full(
                prompt,
                model=self.config.model,
                system=system,
                temperature=sampling.temperature,
                max_tokens=sampling.max_tokens,
            )

        try:
            reply = await in_thread(call)
        except Exception as error:
            raise RequestError("engine", f"{type(error).__name__}: {error}") from error
        if not isinstance(reply, dict) or not isinstance(reply.get("content"), str):
            raise RequestError("bad_response", "generate_full returned no dictionary with a text 'content'")
        usage = reply.get("usage") or {}
        cost = reply.get("cost_usd")
        yield Chunk(
            text=reply["content"],
            finish_reason=reply.get("finish_reason") or "stop",
            usage=Usage(count_of(usage.get("prompt_tokens")), count_of(usage.get("completion_tokens"))),
            cost_usd=measure_of(cost),
            whole=True,
        )

    async def close(self) -> None:
        backend, self._backend = self._backend, None
        if backend is not None:
            await in_thread(backend.close)
