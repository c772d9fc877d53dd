"""Start an engine on a test's server and ask it, the same way whatever the engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from evalray.engines.base import Engine, EngineConfig
from evalray.engines.session import RetryPolicy, run_request
from evalray.types import Generation, GenerationRequest, SamplingParams

FAST = RetryPolicy(max_retries=2, base_seconds=0.001, cap_seconds=0.002)
QUESTION = "What is 2 plus 2?"
SCHEMA = {
    "type": "object",
    "properties": {"verdict": {"type": "string", "enum": ["right", "wrong"]}},
    "required": ["verdict"],
    "additionalProperties": False,
}
Connect = Callable[..., Awaitable[Engine]]


@asynccontextmanager
async def starting(engine: type[Engine], **defaults: Any) -> AsyncIterator[Connect]:
    """A function that starts one, with settings on top of ``defaults``; at the end all are closed, twice."""
    started: list[Engine] = []

    async def start(model: str = "stub", **settings: Any) -> Engine:
        made = engine(EngineConfig(model=model, engine=engine.name, **{**defaults, **settings}))
        started.append(made)
        await made.start()
        return made

    try:
        yield start
    finally:
        for made in started:
            await made.close()
            await made.close()


def ask(
    text: str = QUESTION,
    *,
    system: str = "",
    timeout_seconds: float = 20.0,
    schema: dict[str, Any] | None = None,
    **sampling: Any,
) -> GenerationRequest:
    messages = ({"role": "system", "content": system},) if system else ()
    return GenerationRequest(
        "r",
        (*messages, {"role": "user", "content": text}),
        SamplingParams(**{"max_tokens": 16, **sampling}),
        timeout_seconds,
        schema,
    )


async def run(engine: Engine, text: str = QUESTION, **fields: Any) -> Generation:
    return await run_request(engine, ask(text, **fields), policy=FAST)
