"""One judge of a sweep: its engine actors, started when it is first asked and kept until the end.

Judges answer beside generation and are never in its way: they have actors of their own and a queue
that is bounded in samples (:attr:`JudgePool.room`).  Whoever finds it full comes back later.
A question that was taken in ends in a reply, in :class:`~evalray.errors.JudgeError`, or, when the
sweep stops, in :class:`QuestionDropped`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evalray.deployments import Deployment, JudgeDeployment
from evalray.engines.base import EngineInfo
from evalray.errors import EngineStartError, EvalRayError, JudgeError, PlacementError
from evalray.judges import JudgePrompt
from evalray.runtime.actor import find_engine
from evalray.runtime.admission import Claim
from evalray.runtime.placement import replica_need
from evalray.runtime.policy import RuntimePolicy
from evalray.runtime.pool import EnginePool
from evalray.runtime.progress import ReplicaProgress, SweepProgress
from evalray.runtime.queue import WorkItem
from evalray.runtime.replica import PoolSpec
from evalray.runtime.telemetry import JudgeWatch
from evalray.types import Generation, GenerationRequest, SamplingParams
from evalray.wording import counted

_LOOK_SECONDS = 0.5


class QuestionDropped(Exception):  # noqa: N818 -- what happens to a question, not a fault
    """The sweep stops before the judge was asked: the sample is judged when it is continued."""


class Room:
    """How many samples may be with a judge at once; entering never blocks unless asked to."""

    def __init__(self, size: int) -> None:
        self._free = asyncio.Semaphore(size)

    @property
    def full(self) -> bool:
        return self._free.locked()

    async def enter(self) -> None:
        await self._free.acquire()

    def leave(self) -> None:
        self._free.release()


@dataclass(slots=True, frozen=True)
class JudgeSurroundings:
    """What all judges of a sweep share."""

    policy: RuntimePolicy
    progress: SweepProgress
    say: Callable[[str], None]
    place: Callable[[Claim], Awaitable[Claim]]
    admit: Callable[[Claim], AbstractAsyncContextManager[None]]
    contended: Callable[[], bool]
    """Whether a deployment waits for resources."""
    placement_seconds: float
    watch: Callable[[Deployment], JudgeWatch | None] = lambda deployment: None
    """Who is told of a judge's replicas and of what they answered, where that matters."""


@dataclass(slots=True, eq=False)
class _Question:
    owner: object
    reply: asyncio.Future[Generation]


class JudgePool:
    """See the module.  :meth:`open` it in the driver's loop before anything is asked."""

    def __init__(self, judge: JudgeDeployment, policy: RuntimePolicy) -> None:
        self.judge = judge
        self.model = judge.model
        self.failure = f"judge {judge.model}: {judge.problem}" if judge.problem else ""
        """Why it can no longer be asked."""
        deployment = judge.deployment
        self._in_flight = deployment.in_flight
        self._sampling = SamplingParams(judge.temperature, judge.max_tokens)
        at_once = deployment.replicas * (self._in_flight or self._engine_default())
        self.room = Room(policy.scoring_backlog + at_once)
        self._around: JudgeSurroundings | None = None
        self._waiting: deque[WorkItem] = deque()
        self._asked: dict[str, WorkItem] = {}
        self._number = 0
        self._running: asyncio.Task[None] | None = None
        self._pool: EnginePool | None = None
        self._watch: JudgeWatch | None = None
        self._stopping = False
        self._retiring = False
        self._failed_starts = 0
        """Since the last that came up."""
        self._failing_since = 0.0

    def identity(self) -> dict[str, Any]:
        """What can change a verdict: in the scorer's fingerprint, and no secret."""
        config = self.judge.deployment.engine_config
        args = config.engine_args
        return {
            "model": self.model,
            "engine": config.engine,
            "temperature": float(self.judge.temperature),
            "max_tokens": self.judge.max_tokens,
            "engine_args": dict(args) if self.failure else find_engine(config.engine).answer_args(args),
        }

    def open(self, around: JudgeSurroundings) -> None:
        self._around = around
        if not self.failure:
            self._watch = around.watch(self.judge.deployment)

    # -- asking -----------------------------------------------------------------------------

    async def ask(self, prompts: Sequence[JudgePrompt], owner: object) -> list[Generation]:
        """The replies to ``prompts``, in order; failed calls have their error in them.

        ``owner`` is whoever :meth:`withdraw` names.  Raises :class:`JudgeError` where the judge
        cannot be asked, :class:`QuestionDropped` once the sweep stops.
        """
        if self._stopping:
            raise QuestionDropped
        if self.failure:
            raise JudgeError(self.failure)
        loop = asyncio.get_running_loop()
        timeout = self.judge.deployment.engine_config.timeout_seconds
        replies = []
        for prompt in prompts:
            self._number += 1
            question = _Question(owner, loop.create_future())
            request = GenerationRequest(
                f"judge:{self._number}", prompt.messages, self._sampling, timeout, prompt.response_schema
            )
            item = WorkItem(request, question)
            self._asked[request.request_id] = item
            self._waiting.append(item)
            replies.append(question.reply)
        self._wake()
        return list(await asyncio.gather(*replies))

    def withdraw(self, owner: object, reason: str) -> None:
        """Answer what ``owner`` has waiting with a :class:`JudgeError`; what is with an engine goes on."""
        kept: deque[WorkItem] = deque()
        for item in self._waiting:
            if item.tag.owner is owner:
                self._end(item, JudgeError(reason))
            else:
                kept.append(item)
        self._waiting = kept

    def _wake(self) -> None:
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        if self._pool is not None:
            self._pool.wake()

    # -- the source and the sink of its engines -----------------------------------------------

    def take(self, limit: int) -> list[WorkItem]:
        items: list[WorkItem] = []
        while self._waiting and len(items) < limit:
            item = self._waiting.popleft()
            if item.tag.reply.done():  # given up while it waited
                self._asked.pop(item.request.request_id, None)
            else:
                items.append(item)
        return items

    def remaining(self) -> int | None:
        return len(self._waiting)

    def exhausted(self) -> bool:
        return self._stopping or (self._retiring and not self._waiting)

    async def _answer(self, finished: list[tuple[WorkItem, Generation]]) -> None:
        if self._watch is not None:
            await self._watch.answered([generation for _, generation in finished])
        for item, generation in finished:
            self._asked.pop(item.request.request_id, None)
            if not item.tag.reply.done():
                item.tag.reply.set_result(generation)

    def _end(self, item: WorkItem, error: Exception) -> None:
        self._asked.pop(item.request.request_id, None)
        if not item.tag.reply.done():
            item.tag.reply.set_exception(error)

    # -- its life ---------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while self._asked and not self._stopping:
                try:
                    await self._live()
                except (EngineStartError, PlacementError) as error:
                    await self._wait_to_start_again(error)
        except EvalRayError as error:
            self._fail(str(error))
        except Exception as error:  # noqa: BLE001 -- a judge that cannot run must not end the sweep
            self._fail(f"{type(error).__name__}: {error}")
        finally:
            ended = JudgeError(self.failure) if self.failure else QuestionDropped()
            self._waiting.clear()
            for item in list(self._asked.values()):
                self._end(item, ended)

    async def _wait_to_start_again(self, error: EvalRayError) -> None:
        """After a start that failed; raises ``error`` where it failed too often, or for too long."""
        around, now = self._around, time.monotonic()
        assert around is not None
        policy = around.policy
        if not self._failed_starts:
            self._failing_since = now
        self._failed_starts += 1
        failing_seconds = now - self._failing_since
        if (
            self._failed_starts > policy.restarts_without_result
            or failing_seconds > policy.judge_start_seconds
        ):
            raise error
        if self._failed_starts == 1:
            around.say(f"judge {self.model}: {error}; it is tried again, and answers wait for it")
        await asyncio.sleep(policy.restart_delay_seconds(self._failed_starts))

    async def _live(self) -> None:
        """One life of its actors: until the sweep ends, or others need what they hold."""
        around = self._around
        assert around is not None
        self._retiring = False
        deployment = self.judge.deployment
        wanted = Claim(replica_need(deployment), deployment.replicas, exclusive=False, counts=False)
        claim = await around.place(wanted)
        async with around.admit(claim):
            spec = PoolSpec(
                f"judge:{self.model}",
                self._engine_config(),
                claim.need,
                claim.replicas,
                self._in_flight,
                around.placement_seconds,
            )
            pool = self._pool = EnginePool(
                spec,
                self,
                self._answer,
                policy=around.policy,
                on_ready=self._ready,
                say=around.say,
                watch=self._watch,
            )
            around.progress.replicas.extend(pool.progress)
            watching = asyncio.create_task(self._give_way()) if claim.need.as_resources() else None
            try:
                await pool.run()
            except (EngineStartError, PlacementError):
                self._hide(pool.progress)
                raise
            finally:
                self._pool = None
                if watching is not None:
                    watching.cancel()
                if self._watch is not None:
                    await self._watch.closed()
                if self._retiring:
                    self._hide(pool.progress)

    def _ready(self, info: EngineInfo) -> None:
        self._failed_starts = 0

    def _hide(self, replicas: Sequence[ReplicaProgress]) -> None:
        """Show them no more: their actors are gone, and others may come."""
        gone = {id(replica) for replica in replicas}
        assert self._around is not None
        progress = self._around.progress
        progress.replicas = [replica for replica in progress.replicas if id(replica) not in gone]

    async def _give_way(self) -> None:
        """Let go of GPUs and cores that a deployment waits for, as soon as there is nothing to judge."""
        around, idle = self._around, 0.0
        assert around is not None
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            idle = idle + _LOOK_SECONDS if around.contended() and not self._asked else 0.0
            if idle >= around.policy.judge_idle_seconds and self._pool is not None:
                self._retiring = True
                self._pool.wake()
                return

    def _engine_config(self) -> Any:
        config = self.judge.deployment.engine_config
        if config.path and Path(config.path).exists():
            config = replace(config, path=str(Path(config.path).absolute()))
        return config

    def _engine_default(self) -> int:
        return (
            1 if self.failure else find_engine(self.judge.deployment.engine_config.engine).default_concurrency
        )

    def _fail(self, reason: str) -> None:
        tried = f" (tried {counted(self._failed_starts, 'time')})" if self._failed_starts else ""
        self.failure = f"judge {self.model}: {reason}{tried}"
        if self._around is not None:
            # What it failed of was said when it was tried first.
            self._around.say(f"judge {self.model}: given up{tried}" if self._failed_starts else self.failure)

    def stop(self) -> None:
        """Ask nothing more; what is with an engine may finish, within the drain deadline."""
        self._stopping = True
        while self._waiting:
            self._end(self._waiting.popleft(), QuestionDropped())
        if self._pool is not None:
            self._pool.stop()
        elif self._running is not None:
            self._running.cancel()

    def kill(self) -> None:
        """End its actors now."""
        if self._pool is not None:
            self._pool.kill()

    async def close(self) -> None:
        """The sweep is over: end the actors and wait for it."""
        self._stopping = True
        if self._pool is not None:
            self._pool.wake()
        if self._running is None:
            return
        around = self._around
        assert around is not None
        limit = around.policy.drain_seconds + around.policy.stop_seconds + 10.0
        if self._pool is None:
            self._running.cancel()
        with contextlib.suppress(TimeoutError, asyncio.CancelledError):
            await asyncio.wait_for(self._running, limit)
