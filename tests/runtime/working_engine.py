"""An engine that makes the stub's GPUs draw power as its requests work: ``runtime.working_engine:WorkingEngine``.

A prompt such as ``prompt=400 tokens=61 seconds=2.5 7`` takes 2.5 s, a tenth of them for the prompt, and
``joules_per_token`` for each token of the prompt and each but the first of the answer; it answers
``ANSWER: 7``.  ``once=PATH`` with ``die`` ends the process in mid-request.  ``engine_args``: ``power``, the folder in
which the GPUs' logs are, ``joules``, a file that gets each request's true joules, and ``reply`` in place of the
answer, as a judge gives it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar

from runtime.power_log import PowerLog

from evalray.engines.base import Chunk, Engine, EngineInfo, Usage
from evalray.types import GenerationRequest

NAME = "runtime.working_engine:WorkingEngine"
_PREFILL = 0.1


class WorkingEngine(Engine):
    name: ClassVar[str] = NAME
    answer_neutral_args: ClassVar[frozenset[str]] = frozenset(
        {"power", "joules", "joules_per_token", "reply"}
    )

    async def start(self) -> EngineInfo:
        folder = Path(self.config.engine_args["power"])
        gpus = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
        self._logs = [PowerLog(folder / f"gpu{gpu}") for gpu in gpus]
        return EngineInfo(NAME, self.config.model, "1", max_concurrency=self.config.max_concurrency or 4)

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Chunk]:
        words = request.messages[-1]["content"].split()
        given = dict(word.split("=", 1) for word in words if "=" in word)
        prompt, tokens = int(given.get("prompt", 1)), int(given.get("tokens", 2))
        seconds = float(given.get("seconds", 0.2))
        joules = float(self.config.engine_args.get("joules_per_token", 1.0))
        first = prompt * joules / (_PREFILL * seconds)
        later = (tokens - 1) * joules / ((1 - _PREFILL) * seconds)
        began = self._draw(first)
        try:
            await asyncio.sleep(_PREFILL * seconds)
        finally:
            decoding = self._draw(-first)
        reply = self.config.engine_args.get("reply") or f"ANSWER: {words[-1]}"
        yield Chunk(reply[:1])
        self._draw(later)
        try:
            if "die" in words and not Path(given["once"]).exists():
                Path(given["once"]).touch()
                os._exit(1)
            await asyncio.sleep((1 - _PREFILL) * seconds)
        finally:
            ended = self._draw(-later)
        yield Chunk(reply[1:])
        if path := self.config.engine_args.get("joules"):
            used = first * (decoding - began) + later * (ended - decoding)
            with Path(path).open("a") as file:
                file.write(f"{request.request_id} {used}\n")
        yield Chunk(finish_reason="stop", usage=Usage(prompt, tokens))

    def _draw(self, watts: float) -> float:
        """``watts`` more from now on, on all GPUs together; when that was."""
        for log in self._logs:
            log.change(watts / len(self._logs))
        return time.monotonic()

    async def close(self) -> None:
        pass
