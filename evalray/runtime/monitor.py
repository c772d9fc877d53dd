"""NodeMonitor: one actor per node that samples every device there, and the driver's end of it.

The actor books nothing and holds no more than a few minutes of ticks; the driver fetches them every other
second.  A monitor that dies is replaced a few times and then given up: what it did not see is missing from
the figures, and nothing else happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from evalray.telemetry import (
    Batch,
    NodeInfo,
    NodeSampler,
    find_meters,
    kept_probes,
    read_clocks,
    why_no_driver,
)

_DRAIN_SECONDS = 2.0
_START_SECONDS = 60.0
_CALL_SECONDS = 20.0
_RESTARTS = 3
#: Energy counters are late: what a request used shows a little after its end.
_AFTER_SECONDS = 1.0


class NodeMonitor:
    """The actor.  Its calls come one at a time."""

    def __init__(self, node_id: str, estimate: bool) -> None:
        self._sampler = NodeSampler(find_meters(estimate=estimate), node_id=node_id)
        self._sampler.start()

    def node(self) -> tuple[dict[str, Any], int]:
        """The node as :class:`NodeInfo`'s plain values, and this process's id."""
        return _described(self._sampler.node).to_dict(), os.getpid()

    def drain(self) -> Batch:
        """What was sampled since the last call."""
        return self._sampler.drain()

    def stop(self) -> Batch:
        """Take a last tick and close the meters; the last batch."""
        self._sampler.stop()
        return self._sampler.drain()


def _described(node: NodeInfo) -> NodeInfo:
    """With this machine's hardware probes, and why there is no meter of a kind, where there is none."""
    node = replace(node, probes=kept_probes(node.devices))
    if any(device.has_energy for device in node.devices):
        return node
    notes = (
        [] if node.devices else ["no RAPL counters under /sys/class/powercap (virtual machine, or not Linux)"]
    )
    if (driver := why_no_driver()) is not None:
        notes.append(f"no NVIDIA driver: {driver}")
    return replace(node, notes=(*node.notes, *notes))


def node_without_meters(node_id: str) -> NodeInfo | None:
    """This machine as a node, where it has no device to sample: no actor is needed then.

    ``None`` where it has one.
    """
    meters = find_meters()
    for meter in meters:
        with contextlib.suppress(Exception):
            meter.close()
    return None if meters else _described(NodeInfo(node_id, (), 0.0, read_clocks()))


class MonitorLink:
    """The driver's end of the monitors of one node, one after another.

    ``keep(incarnation, node, batch)`` is called in a thread with each batch; what it raises ends the
    monitoring of this node and is said once.  ``estimate`` is as in :func:`find_meters`.
    """

    def __init__(
        self,
        node_id: str,
        keep: Callable[[int, NodeInfo, Batch], None],
        say: Callable[[str], None],
        *,
        estimate: bool,
    ) -> None:
        self.node_id = node_id
        self.node: NodeInfo | None = None
        """Once the first monitor is up."""
        self.pid: int | None = None
        self.failure = ""
        """Why this node is no longer sampled."""
        self._keep = keep
        self._say = say
        self._estimate = estimate
        self._up = asyncio.Event()
        self._stopping = asyncio.Event()
        self._unkept = False
        self._actor: Any = None
        self._task = asyncio.create_task(self._run())

    async def wait_until_up(self, seconds: float) -> None:
        """Return once the node is sampled, will not be, or the time is over."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._up.wait(), seconds)

    async def flush(self, since: float) -> None:
        """Fetch what is there, at least a second after ``since`` (this process's monotonic clock)."""
        await asyncio.sleep(max(0.0, since + _AFTER_SECONDS - time.monotonic()))
        with contextlib.suppress(Exception):
            await self._fetch("drain")

    async def close(self) -> None:
        """A last batch, then the end of the actor.  Never raises."""
        self._stopping.set()
        with contextlib.suppress(Exception):
            await asyncio.wait_for(asyncio.shield(self._task), 2 * _CALL_SECONDS)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._kill()

    async def _run(self) -> None:
        for incarnation in range(_RESTARTS + 1):
            try:
                await self._live(incarnation)
                return
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 -- whatever a meter, Ray or the disk does
                lines = str(error).strip().splitlines() or [""]
                self.failure = f"{type(error).__name__}: {lines[-1].strip()}"[:200]
                self._kill()
                if self._stopping.is_set() or self._unkept:
                    break
            finally:
                self._up.set()
        self._say(f"telemetry of node {self.node_id[:8]} ended: {self.failure}; the runs go on without it")

    async def _live(self, incarnation: int) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(self.node_id, soft=False)
        options = {"num_cpus": 0, "max_restarts": 0, "scheduling_strategy": here}
        self._actor = ray.remote(NodeMonitor).options(**options).remote(self.node_id, self._estimate)
        plain, self.pid = await _call(self._actor.node, _START_SECONDS)
        self.node = NodeInfo.from_dict(plain)
        self._incarnation = incarnation
        self.failure = ""
        await self._fetch("drain")
        self._up.set()
        while self.node.devices and not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _DRAIN_SECONDS)
            await self._fetch("stop" if self._stopping.is_set() else "drain")
        self._kill()

    async def _fetch(self, method: str) -> None:
        actor, node = self._actor, self.node
        if actor is None or node is None:
            return
        batch: Batch = await _call(getattr(actor, method), _CALL_SECONDS)
        try:
            await asyncio.to_thread(self._keep, self._incarnation, node, batch)
        except Exception:
            self._unkept = True  # the disk would take no other monitor's readings either
            raise

    def _kill(self) -> None:
        actor, self._actor = self._actor, None
        if actor is not None:
            import ray

            with contextlib.suppress(Exception):
                ray.kill(actor)


async def _call(method: Any, seconds: float) -> Any:
    return await asyncio.wait_for(asyncio.wrap_future(method.remote().future()), seconds)
