"""The driver's end of one engine actor: one life of one replica.

Calls are numbered, so that one whose reply was lost is repeated without doing anything twice.
Whatever Ray reports becomes either an answer or :class:`ReplicaLost`, which says whether a record
may be to blame; nothing here decides what happens then.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from evalray.engines.base import EngineConfig, EngineInfo, WorkCounters
from evalray.errors import EngineStartError, PlacementError
from evalray.runtime.actor import ActorFacts, EngineActor, Reply, Started
from evalray.runtime.group import ReplicaGroup
from evalray.runtime.placement import Need, describe_missing
from evalray.runtime.policy import RuntimePolicy
from evalray.runtime.queue import WorkItem, prefetch_for


class ReplicaLost(Exception):  # noqa: N818 -- an event of a replica's life, not a fault of the caller
    """The actor is gone, or has to be given up.  ``blame``: a record it held may have done it."""

    def __init__(self, reason: str, *, blame: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.blame = blame


class ReplicaLink:
    """An engine actor from its creation to its end."""

    def __init__(self, config: EngineConfig, engine_id: str, need: Need, policy: RuntimePolicy) -> None:
        self.engine_id = engine_id
        self._need = need
        self._policy = policy
        self._config = replace(config, spans_nodes=True) if need.spread else config
        self._group = ReplicaGroup(need) if need.spread else None
        self._actor: Any = None
        self._batch_number = 0
        self._acknowledged = 0
        self._hungry_below = 0
        self._ended = False
        self.facts: ActorFacts | None = None
        self.limit = 0
        self.counters: WorkCounters | None = None
        """What the engine said it did, once it was closed in order."""

    async def open(
        self,
        limit: int | None,
        placement_seconds: float,
        on_placed: Callable[[ActorFacts], None] = lambda facts: None,
    ) -> EngineInfo:
        """Wait until the actor is placed, then until its engine is up.

        Raises :class:`PlacementError`, :class:`EngineStartError` or :class:`ReplicaLost`.
        """
        try:
            if self._group is not None:
                await self._reserve(self._group, placement_seconds)
            self._create_actor()
            self.facts = await self._call(self._actor.where.remote, placement_seconds)
        except TimeoutError:
            raise PlacementError(await asyncio.to_thread(self._why_not_placed, placement_seconds)) from None
        on_placed(self.facts)
        started: Started = await self._call_known(
            lambda: self._actor.start.remote(limit), self._config.start_timeout_seconds
        )
        if started.info is None:
            raise EngineStartError(started.error)
        self.limit = started.limit
        self._hungry_below = max(1, prefetch_for(self.limit) // 2)
        return started.info

    async def exchange(self, items: list[WorkItem], *, more_to_come: bool) -> Reply:
        """Hand items over, and wait for results: at least one, unless a poll's time passes."""
        number, batch = self._pack(items)
        hungry = self._hungry_below if more_to_come else 0
        policy = self._policy

        def call() -> Any:
            return self._actor.exchange.remote(
                number, batch, self._acknowledged, policy.poll_seconds, policy.linger_seconds, hungry
            )

        raw: bytes = await self._call_known(call, policy.poll_seconds)
        reply: Reply = pickle.loads(raw)
        self._acknowledged = reply.number
        return reply

    async def submit(self, items: list[WorkItem]) -> None:
        """Hand items over while an exchange is waiting."""
        number, batch = self._pack(items)
        await self._call_known(lambda: self._actor.submit.remote(number, batch), 0.0)

    async def recall(self) -> list[str]:
        """Take back what the actor has not begun."""
        recalled: list[str] = await self._call_known(lambda: self._actor.recall.remote(), 0.0)
        return recalled

    async def close(self) -> None:
        """Let the engine close itself, for a while; then end the actor."""
        if self._ended:
            return
        if self._actor is not None:
            with contextlib.suppress(Exception):
                self.counters = await self._call(self._actor.stop.remote, self._policy.stop_seconds)
        self.kill()

    def kill(self) -> None:
        """End the actor now.  Safe to call twice, and from a signal handler."""
        if self._ended:
            return
        self._ended = True
        import ray

        if self._actor is not None:
            with contextlib.suppress(Exception):
                ray.kill(self._actor)
        if self._group is not None:
            self._group.remove()

    async def nodes_alive(self) -> bool:
        """Whether every node that the replica is on is alive."""
        return await asyncio.to_thread(self._nodes_alive)

    # -- inside -----------------------------------------------------------------------------

    async def _reserve(self, group: ReplicaGroup, seconds: float) -> None:
        from ray.exceptions import RayError

        try:
            await group.reserve(seconds)
        except RayError as error:
            raise ReplicaLost(_cause(error), blame=False) from error

    def _create_actor(self) -> None:
        import ray

        options = self._need.actor_options()
        if self._group is not None:
            options["scheduling_strategy"] = self._group.strategy()
        # On the class as it is importable there: it travels by name, not by value.
        self._actor = ray.remote(EngineActor).options(**options).remote(self._config, self.engine_id)

    def _pack(self, items: list[WorkItem]) -> tuple[int, bytes]:
        if not items:
            return 0, b""
        self._batch_number += 1
        return self._batch_number, pickle.dumps([item.request for item in items], 5)

    async def _call(self, call: Callable[[], Any], seconds: float) -> Any:
        """One call with a deadline.  Raises :class:`TimeoutError` or :class:`ReplicaLost`."""
        from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError

        try:
            return await asyncio.wait_for(asyncio.wrap_future(call().future()), seconds)
        except ActorUnavailableError:
            raise
        except ActorDiedError as error:
            raise await self._lost(_cause(error)) from None
        except RayError as error:
            raise ReplicaLost(_cause(error), blame=False) from error

    async def _call_known(self, call: Callable[[], Any], seconds: float) -> Any:
        """A call that is repeated until it is answered, or the actor is known to be gone.

        Only for calls that may be repeated.
        """
        from ray.exceptions import ActorUnavailableError

        while True:
            try:
                return await self._call(call, seconds + self._policy.hang_seconds)
            except TimeoutError:
                waited = seconds + self._policy.hang_seconds
                self.kill()
                raise ReplicaLost(f"no answer within {waited:g} s", blame=True) from None
            except ActorUnavailableError as error:
                await self._until_known(_cause(error))

    async def _until_known(self, cause: str) -> None:
        """Return once an unreachable actor answers again.  Raises :class:`ReplicaLost`."""
        from ray.exceptions import ActorUnavailableError

        deadline = time.monotonic() + self._policy.unavailable_seconds
        while time.monotonic() < deadline:
            if not await self.nodes_alive():
                raise ReplicaLost("its node was lost", blame=False)
            try:
                await self._call(self._actor.ping.remote, self._policy.ping_seconds)
            except (TimeoutError, ActorUnavailableError):
                await asyncio.sleep(0.5)
            else:
                return
        self.kill()
        raise ReplicaLost(f"unreachable for {self._policy.unavailable_seconds:g} s: {cause}", blame=False)

    async def _lost(self, cause: str) -> ReplicaLost:
        """A death: nobody's fault where the node went with it, else perhaps a record's."""
        if not await self.nodes_alive() or ("node" in cause.lower() and "died" in cause.lower()):
            return ReplicaLost("its node was lost", blame=False)
        return ReplicaLost(f"its process died: {cause}", blame=True)

    def _nodes_alive(self) -> bool:
        import ray

        if self.facts is None:
            return True
        own = {self.facts.node_id} | (self._group.node_ids if self._group is not None else frozenset())
        return own <= {node["NodeID"] for node in ray.nodes() if node["Alive"]}

    def _why_not_placed(self, seconds: float) -> str:
        import ray

        missing = describe_missing(self._need, ray.nodes(), ray.available_resources())
        return f"no place within {seconds:g} s: {missing}"


def _cause(error: BaseException) -> str:
    """The line of a Ray error that says something, without its boilerplate."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [
        line for line in lines if "exit_detail" in line or "exit detail" in line or "cause" in line.lower()
    ]
    return (telling or lines or [type(error).__name__])[-1][:300]
