"""The engine actor: one replica of a model, in a process of its own.

``N`` worker tasks, one per request in flight, take requests from a small queue that the driver
keeps filled; what they finish gathers in a buffer that the driver collects.  Where the engine is
a server elsewhere, a gate lets only as many of them send as that server bears.  One call,
:meth:`EngineActor.exchange`, brings requests in and takes results out, because a Ray call costs
about a millisecond whatever it carries.  Requests and results travel as plain pickles in ``bytes``,
which Ray passes on without looking at them.

Calls are numbered in both directions: a call whose reply was lost can be repeated, and neither a
request nor a result is lost or doubled by it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import pickle
import time
from collections import deque
from dataclasses import dataclass

from evalray.engines import (
    ConcurrencyController,
    Engine,
    EngineConfig,
    EngineInfo,
    Gate,
    RetryPolicy,
    WorkCounters,
    engine_class,
    run_request,
    start_engine,
)
from evalray.engines.concurrency import Slot
from evalray.errors import EngineDied, EngineStartError
from evalray.types import Generation, GenerationRequest

#: Results in one reply after which there is no waiting for more.
REPLY_BATCH = 32


def find_engine(name: str) -> type[Engine]:
    """The engine class called ``name``, or at ``module:Class``.

    Raises :class:`~evalray.errors.ConfigError` for an unknown name.
    """
    return engine_class(name)


@dataclass(slots=True, frozen=True)
class ActorFacts:
    """Where a replica lives."""

    node_id: str
    pid: int
    visible_gpus: str | None = None
    """Its ``CUDA_VISIBLE_DEVICES``, as Ray set it."""
    spans_nodes: bool = False
    """Its GPUs are not its node's alone."""
    placed_monotonic: float | None = None
    """When it got its place, by its node's monotonic clock: before its first request, after its predecessor's last."""


@dataclass(slots=True)
class Started:
    """What starting the engine came to: ``info`` or ``error``."""

    info: EngineInfo | None = None
    limit: int = 0
    error: str = ""


@dataclass(slots=True)
class Reply:
    """What one exchange takes out.  ``number`` is acknowledged by the next exchange."""

    number: int
    results: list[tuple[str, Generation]]
    in_flight: int
    queued: int
    fatal: str = ""
    """Why the engine is gone; empty while it lives."""
    limit: int = 0
    """Requests that may be in flight right now."""
    throttled: bool = False
    """The server bears fewer than the replica's own limit."""


class EngineActor:
    """Hosts one engine.  Every method is a coroutine: a plain one would hold up the event loop."""

    def __init__(self, config: EngineConfig, engine_id: str) -> None:
        # The numbers that Ray gives are NVML's, by PCI address.  CUDA's own default puts the fastest GPU first:
        # on a machine of differing GPUs an engine would compute on one and be charged for another.
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        self._config = config
        self._engine_id = engine_id
        self._node_id = ""
        self._policy = RetryPolicy.from_config(config)
        self._engine: Engine | None = None
        self._queue: deque[tuple[GenerationRequest, float]] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._workers: list[asyncio.Task[None]] = []
        self._in_flight = 0
        """Requests at a worker, those that wait to be sent again included."""
        self._limit = 0
        self._gate: Gate | None = None
        self._out: list[tuple[str, Generation]] = []
        self._unacknowledged: Reply | None = None
        self._replies = 0
        self._seen_batches: deque[int] = deque(maxlen=64)
        self._wanted = 1
        self._hungry_below = 0
        self._ready = asyncio.Event()
        self._fatal = ""

    async def where(self) -> ActorFacts:
        """Answers as soon as the actor runs."""
        import ray

        self._node_id = ray.get_runtime_context().get_node_id()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        return ActorFacts(self._node_id, os.getpid(), visible, self._config.spans_nodes, time.monotonic())

    async def ping(self) -> int:
        return len(self._queue) + self._in_flight

    async def start(self, limit: int | None) -> Started:
        """Load the engine and be ready for ``limit`` requests at once (default: what it reports)."""
        for name in self._config.withheld_env:
            os.environ.pop(name, None)
        if self._config.spans_nodes:
            _tell_address()
        try:
            engine = find_engine(self._config.engine)(self._config)
            self._engine = engine
            info = await asyncio.wait_for(start_engine(engine), self._config.start_timeout_seconds)
        except TimeoutError:
            await self._close_engine()
            return Started(error=f"not up within {self._config.start_timeout_seconds:g} s")
        except EngineStartError as error:
            await self._close_engine()
            return Started(error=str(error))
        except Exception as error:  # noqa: BLE001 -- whatever an SDK raises while it loads
            await self._close_engine()
            return Started(error=f"{type(error).__name__}: {error}")
        number = self._limit = max(1, limit or self._config.max_concurrency or info.max_concurrency)
        if self._config.adaptive_concurrency:
            self._gate = Gate(ConcurrencyController(number))
        self._workers = [asyncio.create_task(self._work()) for _ in range(number)]
        # What was loaded stays: going through it again would hold up every request for tens of milliseconds.
        gc.collect()
        gc.freeze()
        return Started(info, number)

    async def exchange(
        self,
        batch_number: int,
        batch: bytes,
        acknowledged: int,
        max_wait_seconds: float,
        linger_seconds: float,
        hungry_below: int,
    ) -> bytes:
        """Take requests in and finished results out.

        Waits up to ``max_wait_seconds`` for a first result, then lingers a moment for more, unless
        the queue runs below ``hungry_below``.  Returns a pickled :class:`Reply`.
        """
        self._accept(batch_number, batch)
        lost = self._unacknowledged
        if lost is not None:
            if lost.number > acknowledged:
                return pickle.dumps(lost, 5)
            self._unacknowledged = None
        self._hungry_below = hungry_below
        await self._wait_for_results(1, max_wait_seconds)
        if self._out and not self._is_hungry():
            await self._wait_for_results(REPLY_BATCH, linger_seconds)
        self._replies += 1
        reply = self._reply()
        self._out = []
        self._unacknowledged = reply
        return pickle.dumps(reply, 5)

    async def submit(self, batch_number: int, batch: bytes) -> None:
        """Requests that came up while an exchange is waiting."""
        self._accept(batch_number, batch)

    async def recall(self) -> list[str]:
        """Give back what was not begun; returns the request ids."""
        recalled = [request.request_id for request, _ in self._queue]
        self._queue.clear()
        self._ready.set()
        return recalled

    async def stop(self) -> WorkCounters | None:
        """End the work and close the engine, so that nothing of it outlives the actor; what it counted till then."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        counted = None
        if self._engine is not None:
            with contextlib.suppress(Exception):
                counted = self._engine.counters()
        await self._close_engine()
        return counted

    # -- inside -----------------------------------------------------------------------------

    def _reply(self) -> Reply:
        reply = Reply(
            self._replies, self._out, self._in_flight, len(self._queue), self._fatal, limit=self._limit
        )
        if self._gate is not None:
            reply.in_flight, reply.limit = self._gate.active, self._gate.limit
            reply.throttled = self._gate.controller.throttled
        return reply

    def _accept(self, number: int, batch: bytes) -> None:
        if not batch or number in self._seen_batches:
            return
        self._seen_batches.append(number)
        now = time.time()
        self._queue.extend((request, now) for request in pickle.loads(batch))
        for _ in range(min(len(self._queue), len(self._idle))):
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)

    async def _next(self) -> tuple[GenerationRequest, float, Slot | None]:
        while True:
            while not self._queue:
                waiter = asyncio.get_running_loop().create_future()
                self._idle.append(waiter)
                await waiter
            if self._gate is None:
                return *self._queue.popleft(), None
            # What waits for a slot stays in the queue, so that it can be recalled.
            slot = await self._gate.slot()
            if self._queue:
                return *self._queue.popleft(), slot
            slot.release()

    async def _work(self) -> None:
        engine = self._engine
        assert engine is not None
        while not self._fatal:
            request, queued_at, slot = await self._next()
            self._in_flight += 1
            try:
                generation = await run_request(
                    engine,
                    request,
                    engine_id=self._engine_id,
                    node_id=self._node_id,
                    policy=self._policy,
                    queued_at=queued_at,
                    slot=slot,
                )
            except EngineDied as error:
                self._fatal = str(error) or "the engine died"
                self._ready.set()
                return
            except Exception as error:  # noqa: BLE001 -- a fault of ours must cost one sample, not the replica
                generation = Generation(
                    engine_id=self._engine_id,
                    node_id=self._node_id,
                    error=f"{type(error).__name__}: {error}",
                    error_kind="engine",
                )
            finally:
                self._in_flight -= 1
                if slot is not None:
                    slot.release()
            self._out.append((request.request_id, generation))
            if len(self._out) >= self._wanted or self._is_hungry():
                self._ready.set()

    def _is_hungry(self) -> bool:
        return bool(self._fatal) or len(self._queue) < self._hungry_below or not self._queue_or_work()

    def _queue_or_work(self) -> bool:
        return bool(self._queue) or self._in_flight > 0

    async def _wait_for_results(self, number: int, seconds: float) -> None:
        self._wanted = number
        self._ready.clear()
        if len(self._out) >= number or self._fatal:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ready.wait(), seconds)

    async def _close_engine(self) -> None:
        if self._engine is not None:
            with contextlib.suppress(Exception):
                await self._engine.close()
        if self._gate is not None:
            self._gate.close()


def _tell_address() -> None:
    """The engine's own processes join this Ray, to start workers on the replica's other nodes."""
    import ray

    os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
