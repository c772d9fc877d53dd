"""One replica over all its lives: bring it up, serve, replace it when it dies.

The driver owns every retry.  What a lost actor held goes back to the queue, which decides who is a
suspect; a replica that keeps dying without finishing anything is given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from evalray.engines.base import EngineConfig, EngineInfo, WorkCounters
from evalray.errors import EngineStartError, PlacementError
from evalray.runtime.actor import ActorFacts, Reply
from evalray.runtime.link import ReplicaLink, ReplicaLost
from evalray.runtime.placement import Need
from evalray.runtime.policy import RuntimePolicy
from evalray.runtime.progress import ReplicaProgress
from evalray.runtime.queue import MICRO_BATCH, WorkItem, WorkQueue
from evalray.types import Generation

Finished = list[tuple[WorkItem, Generation]]
Deliver = Callable[[Finished], Awaitable[None]]


class ReplicaWatch(Protocol):
    """Whoever wants to know where replicas live.  No call may raise."""

    def placed(self, facts: ActorFacts) -> None:
        """A replica has its place, and its engine begins to start."""
        ...

    async def ready(self, engine_id: str, facts: ActorFacts, info: EngineInfo, concurrency: int) -> None:
        """A replica's engine is up; nothing is asked of it before this returns."""
        ...

    def counted(self, engine_id: str, counters: WorkCounters) -> None:
        """What a replica's engine said of its work as it was closed."""
        ...


@dataclass(slots=True, frozen=True)
class PoolSpec:
    """What the replicas of one pool are."""

    name: str
    """Prefix of the replicas' ids, such as the model's name."""
    config: EngineConfig
    need: Need
    replicas: int = 1
    in_flight: int | None = None
    placement_seconds: float = 120.0


class Replica:
    """See the module.  ``wake`` is set by the pool when there may be something to do."""

    def __init__(
        self,
        spec: PoolSpec,
        index: int,
        queue: WorkQueue,
        policy: RuntimePolicy,
        *,
        deliver: Deliver,
        on_ready: Callable[[EngineInfo], None],
        wake_others: Callable[[], None],
        say: Callable[[str], None],
        watch: ReplicaWatch | None = None,
    ) -> None:
        self.engine_id = f"{spec.name}/{index}"
        self.progress = ReplicaProgress(self.engine_id, spec.config.model)
        self.wake = asyncio.Event()
        self.link: ReplicaLink | None = None
        self.serving = False
        self.waiting = False
        """Serving, and without anything to do."""
        self.failure: Exception | None = None
        self._spec = spec
        self._queue = queue
        self._policy = policy
        self._deliver = deliver
        self._on_ready = on_ready
        self._wake_others = wake_others
        self._say = say
        self._watch = watch
        self._fruitless = 0
        self._was_ready = False
        self._recalled = False

    async def run(self) -> None:
        """Until the queue has nothing more, or the replica is given up (then :attr:`failure` says why).

        Raises what delivering a result raises.
        """
        while True:
            try:
                await self._live()
            except ReplicaLost as lost:
                if not await self._survive(lost):
                    return
            except (EngineStartError, PlacementError) as error:
                # The first time it is the engine's own word; later the cluster may be recovering.
                if not self._was_ready or not await self._survive(ReplicaLost(str(error), blame=False)):
                    self._give_up(error)
                    return
            else:
                self.progress.state = "stopped"
                return

    async def close(self) -> None:
        if self.link is not None:
            await self.link.close()
            if self._watch is not None and self.link.counters is not None:
                self._watch.counted(self.engine_id, self.link.counters)
        if self.progress.state != "failed":
            self.progress.state = "stopped"
        self.progress.in_flight = 0

    async def _live(self) -> None:
        link = self.link = ReplicaLink(self._spec.config, self.engine_id, self._spec.need, self._policy)
        self._queue.expect(self.engine_id)
        try:
            watch = self._watch
            on_placed = watch.placed if watch is not None else _ignore
            info = await link.open(self._spec.in_flight, self._spec.placement_seconds, on_placed)
            if watch is not None and link.facts is not None:
                await watch.ready(self.engine_id, link.facts, info, link.limit)
        except (EngineStartError, PlacementError):
            link.kill()
            raise
        finally:
            self._queue.expect_no_more(self.engine_id)
        self._queue.add_replica(self.engine_id, link.limit)
        self.progress.state, self.progress.limit = "ready", link.limit
        self._on_ready(info)
        self.serving = self._was_ready = True
        try:
            await self._serve(link)
        finally:
            self.serving = False

    async def _serve(self, link: ReplicaLink) -> None:
        queue, poll, woken = self._queue, None, None
        try:
            while True:
                items = queue.grant(self.engine_id)
                if poll is not None:
                    if items:
                        await link.submit(items)
                elif items or queue.held(self.engine_id):
                    more = not queue.closed and queue.has_waiting()
                    poll = asyncio.ensure_future(link.exchange(items, more_to_come=more))
                elif queue.idle():
                    self._wake_others()
                    return
                # Before anything is waited for: a large replica takes several micro-batches.
                while len(items) == MICRO_BATCH and (items := queue.grant(self.engine_id)):
                    await link.submit(items)
                if woken is None:
                    woken = asyncio.ensure_future(self.wake.wait())
                self.waiting = poll is None
                await asyncio.wait({woken, poll} if poll else {woken}, return_when=asyncio.FIRST_COMPLETED)
                self.waiting = False
                if woken.done():
                    self.wake.clear()
                    woken = None
                    if queue.closed:
                        await self._recall(link)
                if poll is not None and poll.done():
                    reply, poll = poll.result(), None
                    await self._take(reply)
        finally:
            for task in (poll, woken):
                if task is not None:
                    task.cancel()

    async def _take(self, reply: Reply) -> None:
        self.progress.in_flight = reply.in_flight
        if reply.limit:
            self.progress.limit = reply.limit
        if self.link is not None and reply.limit:
            # What a throttled server cannot take is another replica's; twice leaves room to recover.
            share = min(self.link.limit, 2 * reply.limit) if reply.throttled else self.link.limit
            self._queue.resize(self.engine_id, share)
        finished = []
        for request_id, generation in reply.results:
            item = self._queue.complete(self.engine_id, request_id)
            if item is not None:
                finished.append((item, generation))
        if finished:
            self._fruitless = 0
            await self._deliver(finished)
        if reply.fatal:
            if self._spec.need.spread and self.link is not None and not await self.link.nodes_alive():
                raise ReplicaLost("one of its nodes was lost", blame=False)
            raise ReplicaLost(reply.fatal, blame=True)

    async def _recall(self, link: ReplicaLink) -> None:
        """Once the queue is closed: what has not begun need not be waited for."""
        if not self._recalled:
            self._recalled = True
            self._queue.give_back(self.engine_id, await link.recall())

    async def _survive(self, lost: ReplicaLost) -> bool:
        """Clean up after a loss; whether to go on with a new actor."""
        if self.link is not None:
            self.link.kill()
        self._fruitless += 1
        convicted = self._queue.lose_replica(self.engine_id, blame=lost.blame)
        self.progress.in_flight = 0
        self.progress.state = "restarting"
        if convicted:
            self._fruitless = 0
            await self._deliver([(item, self._quarantined(item, lost)) for item in convicted])
        self._wake_others()
        if self._queue.closed or self._queue.idle():
            self.progress.state = "stopped"
            return False
        if self._fruitless > self._policy.restarts_without_result:
            self._give_up(lost)
            return False
        self._say(f"{self.engine_id}: {lost.reason}; replacing it")
        await asyncio.sleep(self._policy.restart_delay_seconds(self._fruitless))
        return True

    def _give_up(self, error: Exception) -> None:
        self.failure = error
        self.progress.state = "failed"
        self._wake_others()

    def _quarantined(self, item: WorkItem, lost: ReplicaLost) -> Generation:
        return Generation(
            engine_id=self.engine_id,
            attempts=item.dispatches,
            error=f"this sample ended {item.kills} engines, the last one alone in it: {lost.reason}",
            error_kind="quarantined",
        )


def _ignore(facts: ActorFacts) -> None:
    """Nobody watches."""
