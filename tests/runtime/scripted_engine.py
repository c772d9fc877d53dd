"""An engine that does what the prompt says; found by Ray's processes as ``runtime.scripted_engine:ScriptedEngine``.

Words of the prompt: ``die`` ends the process, ``fatal`` raises EngineDied, ``hang`` blocks the event loop,
``slow`` takes a while, ``fail`` raises a request error; a file named by ``once=PATH`` makes the word work
a single time.  Anything else answers ``ANSWER: <last word>``.  ``engine_args``: ``seconds`` a request takes,
``log`` of what was asked, ``cost`` of a reply, ``children``: a file for the pid of a process it starts,
``counts``: FLOPs that it says each request took, ``workers``: a file for the nodes and pids of its workers, one line
a life; then it does not start unless it spans nodes.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar

from evalray.engines.base import Chunk, Engine, EngineInfo, Usage, WorkCounters
from evalray.errors import EngineDied, EngineStartError, RequestError
from evalray.types import GenerationRequest

NAME = "runtime.scripted_engine:ScriptedEngine"


class ScriptedEngine(Engine):
    name: ClassVar[str] = NAME
    default_concurrency: ClassVar[int] = 4
    can_span_nodes: ClassVar[bool] = True
    answer_neutral_args: ClassVar[frozenset[str]] = frozenset(
        {"seconds", "log", "together", "start", "cost", "children", "counts", "workers"}
    )
    asked = 0
    _core: subprocess.Popen[str] | None = None

    async def start(self) -> EngineInfo:
        args = self.config.engine_args
        if args.get("start") == "fail":
            raise EngineStartError("told not to start")
        if args.get("start") == "die":
            os._exit(1)
        if children := args.get("children"):
            child = subprocess.Popen(["sleep", "600"])
            with Path(children).open("a") as file:
                file.write(f"{os.getpid()} {child.pid}\n")
        if workers := args.get("workers"):
            await self._start_workers(Path(workers))
        return EngineInfo(NAME, self.config.model, "1", max_concurrency=self.config.max_concurrency or 4)

    async def _start_workers(self, told: Path) -> None:
        if not self.config.spans_nodes:
            raise EngineStartError("told to span nodes")
        from ray.util import get_current_placement_group

        group = pickle.dumps(get_current_placement_group()).hex()
        command = [sys.executable, str(Path(__file__).with_name("spanning_core.py")), group]
        self._core = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._core.stdout is not None
        line = await asyncio.to_thread(self._core.stdout.readline)
        with told.open("a") as file:
            file.write(line)

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Chunk]:
        words = request.messages[-1]["content"].split()
        self.asked += 1
        if log := self.config.engine_args.get("log"):
            with Path(log).open("a") as file:
                file.write(f"{os.getpid()} {request.request_id}\n")
        if together := self.config.engine_args.get("together"):
            await self._wait_for_others(together)
        await asyncio.sleep(float(self.config.engine_args.get("seconds", 0.0)))
        if self._applies(words):
            if "die" in words:
                os._exit(1)
            if "fatal" in words:
                raise EngineDied("told to die")
            if "hang" in words:
                time.sleep(3600)
            if "slow" in words:
                await asyncio.sleep(30)
            if "fail" in words:
                raise RequestError("server_error", f"told to fail, request {request.request_id}")
        yield Chunk(f"ANSWER: {words[-1]}")
        yield Chunk(
            finish_reason="stop", usage=Usage(len(words), 2), cost_usd=self.config.engine_args.get("cost")
        )

    async def _wait_for_others(self, number: int) -> None:
        deadline = time.monotonic() + 20.0
        while self.asked < number:
            if time.monotonic() > deadline:
                raise RequestError("server_error", f"{self.asked} of {number} were asked at once")
            await asyncio.sleep(0.01)

    @staticmethod
    def _applies(words: list[str]) -> bool:
        for word in words:
            if word.startswith("once="):
                path = Path(word.removeprefix("once="))
                if path.exists():
                    return False
                path.touch()
        return True

    def counters(self) -> WorkCounters | None:
        each = self.config.engine_args.get("counts")
        return None if each is None else WorkCounters(self.asked * each, 0.0, 0.0)

    async def close(self) -> None:
        if self._core is not None:
            await asyncio.to_thread(self._core.communicate)
        if log := self.config.engine_args.get("log"):
            with Path(log).open("a") as file:
                file.write(f"{os.getpid()} closed\n")
