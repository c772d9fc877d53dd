"""Isolated scoring: a few persistent worker processes, each with a wall clock and killable.

A worker that runs over its time, dies or is flooded is killed and replaced, and the sample becomes
``scorer_error`` with the reason; the caller never waits longer than its turn, the time limit and a
worker's start.  Workers get none of the caller's environment but what Python needs, ignore the
terminal's Ctrl-C, and die with the caller, however it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evalray.scorers.base import Answer, Scorer
from evalray.scorers.registry import build_scorer
from evalray.scorers.worker import Assess, Load, encode_request
from evalray.types import EvalRecord, Outcome, Score

_HEADER = struct.Struct("<I")
_MAX_REPLY_BYTES = 16 << 20
#: A worker is replaced after so many samples: what its libraries cache must not add up.
_MAX_SAMPLES_PER_WORKER = 2_000
_ENVIRONMENT = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "VIRTUAL_ENV",
)


@dataclass(slots=True, frozen=True)
class ScorerSpec:
    """What a worker needs to build a scorer: its registered name or ``module:Class``, and arguments."""

    name: str
    args: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.name} {json.dumps(dict(self.args), sort_keys=True, default=repr)}"


class _WorkerLostError(Exception):
    """The worker is gone or does not speak the protocol."""


class IsolationPool:
    """Up to ``workers`` processes, started when first needed; one sample at a time in each.

    For use within one event loop.  ``close`` leaves no process behind.
    """

    def __init__(self, *, workers: int = 1, start_timeout_seconds: float = 120.0) -> None:
        if workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        self._slots = asyncio.Semaphore(workers)
        self._start_timeout_seconds = start_timeout_seconds
        self._idle: list[_Worker] = []
        self._alive: set[_Worker] = set()
        self._scorers: dict[str, Scorer] = {}
        self._closed = False

    async def __aenter__(self) -> IsolationPool:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def assess(
        self, spec: ScorerSpec, record: EvalRecord, answer: Answer, *, timeout_seconds: float = 20.0
    ) -> Score:
        """The verdict of an isolated scorer on one answer.

        ``timeout_seconds`` bounds the assessment itself; waiting for a free worker and starting one
        are not in it.  Never raises for anything that happens to the worker; raises
        :class:`ConfigError` if the scorer cannot be built, ``RuntimeError`` once closed.
        """
        scorer = self._scorers.get(spec.key)
        if scorer is None:
            scorer = self._scorers[spec.key] = build_scorer(spec.name, spec.args)
        quick = scorer.shortcut(record, answer)
        if quick is not None:
            return quick
        async with self._slots:
            # A worker that dies of something else (the machine's memory) must not cost a sample its grade.
            for attempt in (1, 2):
                if self._closed:
                    raise RuntimeError("the isolation pool is closed")
                try:
                    return await self._assess_once(spec, record, answer, timeout_seconds)
                except _WorkerLostError as lost:
                    if attempt == 2:
                        return _error("crash", str(lost))
        raise AssertionError("unreachable")

    async def _assess_once(
        self, spec: ScorerSpec, record: EvalRecord, answer: Answer, timeout_seconds: float
    ) -> Score:
        worker = self._pick(spec.key)
        try:
            if worker is None:
                worker = await _Worker.start()
                self._alive.add(worker)
            if worker.loaded != spec.key:
                try:
                    reply = await worker.ask(Load(spec.name, dict(spec.args)), self._start_timeout_seconds)
                except TimeoutError:
                    return _error("start_timeout", f"no worker within {self._start_timeout_seconds:g} s")
                if "error" in reply:
                    return _error("cannot_build", str(reply["error"]))
                worker.loaded = spec.key
            try:
                reply = await worker.ask(Assess(record, answer), timeout_seconds)
            except TimeoutError:
                return _error("timeout", f"not decided within {timeout_seconds:g} s")
            worker.samples += 1
            if "error" in reply:
                worker.usable = not reply.get("spent")
                return _error("exception", str(reply["error"]))
            worker.usable = worker.samples < _MAX_SAMPLES_PER_WORKER
            return Score(Outcome(reply["outcome"]), score=reply["score"], metadata=reply["metadata"])
        finally:
            if worker is not None:
                if worker.usable and not self._closed:
                    self._idle.append(worker)
                else:
                    await self._discard(worker)

    def _pick(self, key: str) -> _Worker | None:
        """An idle worker, preferably one that has this scorer loaded."""
        for index, worker in enumerate(self._idle):
            if worker.loaded == key:
                return self._idle.pop(index)
        return self._idle.pop() if self._idle else None

    async def _discard(self, worker: _Worker) -> None:
        self._alive.discard(worker)
        await worker.kill()

    async def close(self) -> None:
        """Kill every worker, idle or busy, and wait until it is gone."""
        self._closed = True
        self._idle.clear()
        for worker in list(self._alive):
            await self._discard(worker)


class _Worker:
    """One process.  ``usable`` is true only between two complete exchanges."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.loaded = ""
        self.samples = 0
        self.usable = True

    @classmethod
    async def start(cls) -> _Worker:
        environment = {key: os.environ[key] for key in _ENVIRONMENT if key in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                "evalray.scorers.worker",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise _WorkerLostError(f"cannot start a scorer process: {error}") from error
        return cls(process)

    async def ask(self, request: Load | Assess, timeout_seconds: float) -> dict[str, Any]:
        """One exchange.  Raises ``TimeoutError`` and :class:`_WorkerLostError`; the worker is then unusable."""
        self.usable = False
        async with asyncio.timeout(timeout_seconds):
            reply = await self._exchange(encode_request(request))
        self.usable = True
        return reply

    async def _exchange(self, frame: bytes) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(frame)
            await self._process.stdin.drain()
            (size,) = _HEADER.unpack(await self._process.stdout.readexactly(_HEADER.size))
            if size > _MAX_REPLY_BYTES:
                raise _WorkerLostError(f"a reply of {size} bytes")
            reply = json.loads(await self._process.stdout.readexactly(size))
        except (OSError, asyncio.IncompleteReadError) as error:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), 1.0)
            raise _WorkerLostError(
                f"the scorer process ended (exit code {self._process.returncode})"
            ) from error
        except ValueError as error:
            raise _WorkerLostError(f"the scorer process sent no valid reply: {error}") from error
        if not isinstance(reply, dict):
            raise _WorkerLostError("the scorer process sent no valid reply")
        return reply

    async def kill(self) -> None:
        # The whole session: a scorer may have started processes of its own.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()


def _error(reason: str, message: str) -> Score:
    return Score(Outcome.SCORER_ERROR, metadata={"reason": reason, "error": message})
