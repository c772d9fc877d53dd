"""A pool: the replicas of one model and the queue they share.

Knows requests and generations, not benchmarks, so that whatever asks a model -- a run, a judge --
is one pool each.  Results go to a sink in small batches, in order of completion.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from evalray.engines.base import EngineInfo
from evalray.errors import EngineDied
from evalray.runtime.policy import RuntimePolicy
from evalray.runtime.progress import ReplicaProgress
from evalray.runtime.queue import WorkItem, WorkQueue, WorkSource
from evalray.runtime.replica import Deliver, PoolSpec, Replica, ReplicaWatch
from evalray.types import Generation


class EnginePool:
    """Works off a source with some replicas.  Use once: :meth:`run`."""

    def __init__(
        self,
        spec: PoolSpec,
        source: WorkSource,
        sink: Deliver,
        *,
        policy: RuntimePolicy | None = None,
        on_ready: Callable[[EngineInfo], None] = lambda info: None,
        say: Callable[[str], None] = lambda line: None,
        watch: ReplicaWatch | None = None,
    ) -> None:
        self.spec = spec
        self._policy = policy or RuntimePolicy()
        self._queue = WorkQueue(source)
        self._announced = False
        self._on_ready = on_ready
        self._sink = sink
        self._stopping = asyncio.Event()
        self._tasks: dict[asyncio.Task[None], Replica] = {}
        self.replicas = [
            Replica(
                spec,
                index,
                self._queue,
                self._policy,
                deliver=self._deliver,
                on_ready=self._ready,
                wake_others=self.wake,
                say=say,
                watch=watch,
            )
            for index in range(spec.replicas)
        ]

    @property
    def progress(self) -> list[ReplicaProgress]:
        return [replica.progress for replica in self.replicas]

    async def run(self) -> None:
        """Start the replicas, serve until the source is exhausted or :meth:`stop` was called, close.

        Raises the first replica's :class:`EngineStartError` or :class:`PlacementError` if none came
        up, :class:`EngineDied` if all were lost, and whatever the sink raises.
        """
        self._tasks = {asyncio.create_task(replica.run()): replica for replica in self.replicas}
        stopping: asyncio.Task[Any] = asyncio.create_task(self._stopping.wait())
        try:
            pending: set[asyncio.Task[Any]] = set(self._tasks)
            while pending and not stopping.done():
                done, _ = await asyncio.wait({*pending, stopping}, return_when=asyncio.FIRST_COMPLETED)
                self._raise_from(done)
                pending -= done
            if pending:
                done, pending = await asyncio.wait(pending, timeout=self._policy.drain_seconds)
                self._raise_from(done)
        finally:
            stopping.cancel()
            await self._close()
        failures = [replica.failure for replica in self.replicas if replica.failure is not None]
        if len(failures) == len(self.replicas) and not self._queue.closed and not self._queue.idle():
            if self._announced:
                raise EngineDied(f"all replicas were lost; the last: {failures[-1]}")
            raise failures[0]

    def wake(self) -> None:
        """There may be work: a source that had none has some, or something came back."""
        for replica in self.replicas:
            replica.wake.set()

    def stop(self) -> None:
        """Hand out nothing more; what is in flight may finish, within the drain deadline."""
        if self._stopping.is_set():
            return
        self._queue.close()
        self._stopping.set()
        self.wake()
        for task, replica in self._tasks.items():
            if not replica.serving:
                task.cancel()

    def kill(self) -> None:
        """End every actor now."""
        for replica in self.replicas:
            if replica.link is not None:
                replica.link.kill()

    async def _deliver(self, finished: list[tuple[WorkItem, Generation]]) -> None:
        await self._sink(finished)
        for replica in self.replicas:
            if replica.waiting:
                replica.wake.set()

    def _ready(self, info: EngineInfo) -> None:
        if not self._announced:
            self._announced = True
            self._on_ready(info)

    @staticmethod
    def _raise_from(done: set[asyncio.Task[Any]]) -> None:
        for task in done:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            closing = asyncio.gather(*(replica.close() for replica in self.replicas))
            await asyncio.wait_for(closing, self._policy.stop_seconds + 5.0)
