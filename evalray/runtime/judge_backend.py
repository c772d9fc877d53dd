"""The judge for scorers that call it themselves, from threads: one blocking call a question.

What such a scorer asked for a sample is recorded, so that its tokens and its failures count as those
of any other judge call.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from evalray.backend import InferenceBackend
from evalray.errors import JudgeError
from evalray.judges import JudgePrompt
from evalray.runtime.judge_pool import JudgePool, QuestionDropped
from evalray.types import Generation

#: Longer than an engine's own deadlines and retries can take, which end a call that hangs.
_RETRY_SECONDS = 150.0


@dataclass(slots=True)
class AskedJudge:
    """What one sample asked, and what came back."""

    owner: object
    generations: list[Generation] = field(default_factory=list)
    dropped: bool = False
    """A question was not asked because the sweep stops."""


class JudgeBackend(InferenceBackend):
    """Leads to a judge's engine actors.  Sampling is what ``[judge]`` says, whatever the call says."""

    backend_id = "judge"

    def __init__(self, pool: JudgePool) -> None:
        self._pool = pool
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked = threading.local()

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    @contextlib.contextmanager
    def recording(self, asked: AskedJudge) -> Iterator[None]:
        """Record in ``asked`` what this thread asks inside the block."""
        self._asked.current = asked
        try:
            yield
        finally:
            self._asked.current = None

    def generate(
        self, prompt: str, *, model: str, system: str = "", temperature: float = 0.0, max_tokens: int = 2048
    ) -> str:
        return self._ask(prompt, model, system).model_answer

    def generate_full(
        self, prompt: str, *, model: str, system: str = "", temperature: float = 0.0, max_tokens: int = 2048
    ) -> dict[str, Any]:
        generation = self._ask(prompt, model, system)
        return {
            "content": generation.model_answer,
            "usage": {
                "prompt_tokens": generation.prompt_tokens,
                "completion_tokens": generation.completion_tokens,
            },
            "model": self._pool.model,
            "latency_seconds": generation.timeline.latency_seconds,
            "cost_usd": generation.cost_usd,
        }

    def _ask(self, prompt: str, model: str, system: str) -> Generation:
        if model and model != self._pool.model:
            raise JudgeError(f"the judge here is {self._pool.model}, not {model}")
        asked: AskedJudge | None = getattr(self._asked, "current", None)
        if self._loop is None:
            raise JudgeError("the judge can only be asked while a sweep runs")
        messages = [{"role": "system", "content": system}] if system else []
        question = JudgePrompt((*messages, {"role": "user", "content": prompt}))
        config = self._pool.judge.deployment.engine_config
        patience = (config.max_retries + 1) * (config.timeout_seconds + _RETRY_SECONDS)
        waiting = asyncio.run_coroutine_threadsafe(
            self._pool.ask([question], asked.owner if asked else None), self._loop
        )
        try:
            [generation] = waiting.result(patience)
        except QuestionDropped:
            if asked is not None:
                asked.dropped = True
            raise JudgeError("the sweep is being stopped") from None
        except TimeoutError:
            waiting.cancel()
            raise JudgeError(f"judge {self._pool.model}: no reply within {patience:g} s") from None
        if asked is not None:
            asked.generations.append(generation)
        if generation.error is not None:
            raise JudgeError(f"judge {self._pool.model}: {generation.error}")
        return generation
