"""Telemetry of a sweep while it runs: which engine computes where, and a monitor for each of those nodes.

Only engines that compute on the cluster's own devices are watched; for servers elsewhere nothing starts.
No failure in here reaches a run: it is said once, and figures are missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from evalray.engines import EngineInfo, WorkCounters
from evalray.plan import Deployment
from evalray.runtime.actor import ActorFacts
from evalray.runtime.engine_facts import learn_later, own_devices, parameter_counts, peak_of, shape_of
from evalray.runtime.monitor import MonitorLink, node_without_meters
from evalray.runtime.recording import EngineLife, Recorder
from evalray.runtime.telemetry_figures import figures_of_runs, is_overdue
from evalray.store import is_disk_full
from evalray.telemetry import (
    Batch,
    LatestReadings,
    NodeInfo,
    ShapeResult,
    read_clocks,
)
from evalray.types import Generation

#: An engine that is ready waits this long for its node's monitor.
_MONITOR_SECONDS = 5.0
_OVER_NODES = "the replica's GPUs are on several nodes, and their energy is not put together yet"


class SweepTelemetry:
    """The nodes that are watched.  Used in the driver's event loop; :meth:`close` it there."""

    def __init__(
        self,
        directory: Path,
        say: Callable[[str], None],
        *,
        local: bool,
        estimate: bool = False,
        latest: LatestReadings | None = None,
    ) -> None:
        self.directory = directory
        self.recorder = Recorder(directory)
        self._latest = latest or LatestReadings()
        self._estimate = estimate
        self._say = say
        self._local = local
        """The only node is the one that this process is on."""
        self.watches: list[DeploymentWatch] = []
        self._nodes: dict[str, asyncio.Task[MonitorLink | NodeInfo]] = {}
        self._told: set[str] = set()

    @property
    def monitors(self) -> list[MonitorLink]:
        """The monitors that were started."""
        done = [task.result() for task in self._nodes.values() if task.done() and not task.exception()]
        return [each for each in done if isinstance(each, MonitorLink)]

    def watch_of(self, deployment: Deployment, runs: Sequence[str]) -> DeploymentWatch | None:
        """Whoever is told of a deployment's replicas; ``None`` where nothing of it is to be measured."""
        if not _is_measured(deployment):
            return None
        watch = DeploymentWatch(self, deployment, tuple(runs))
        self.watches.append(watch)
        return watch

    def watch_of_judge(self, judge: Deployment, deployments: Sequence[Deployment]) -> JudgeWatch | None:
        """Whoever is told of a judge's replicas; ``None`` where it can share no device with ``deployments``."""
        if not judge.computes_here or not any(map(_is_measured, deployments)):
            return None
        return JudgeWatch(self, judge)

    async def catch_up(self, run: str, deployment: Deployment) -> None:
        """Work out figures that an earlier process of the sweep was killed before, or that peaks and parameter
        counts given since make others.  Never raises."""
        try:
            await self.learn(run, deployment)
            if await asyncio.to_thread(is_overdue, self.directory, run):
                await self.work_out([run])
        except Exception as error:  # noqa: BLE001 -- the run has its results without it
            self.trouble(error)

    async def learn(self, run: str, deployment: Deployment) -> None:
        """Write down what has become known of a run's earlier replicas.  Raises ``OSError``."""
        await asyncio.to_thread(
            learn_later, self.directory, self.recorder, run, deployment, local=self._local
        )

    async def work_out(self, runs: Sequence[str], stretch: str = "") -> bool:
        """Write figures of ``runs``, provisional where others go on in ``stretch``.  Whether there are any.

        Raises ``OSError`` and :class:`StoreError`.
        """
        written = await asyncio.to_thread(
            figures_of_runs, self.directory, runs, self.trouble, stretch=stretch
        )
        return bool(written)

    def watch_node(self, node_id: str) -> None:
        """Begin to sample a node that is not sampled yet."""
        if node_id not in self._nodes:
            self._nodes[node_id] = asyncio.create_task(self._watch(node_id))

    async def node(self, node_id: str) -> NodeInfo | None:
        """The node, once it is sampled; ``None`` where that is impossible or takes too long."""
        self.watch_node(node_id)
        began = time.monotonic()
        with contextlib.suppress(Exception):
            link = await asyncio.wait_for(asyncio.shield(self._nodes[node_id]), _MONITOR_SECONDS)
            if isinstance(link, NodeInfo):
                return link
            await link.wait_until_up(max(0.0, began + _MONITOR_SECONDS - time.monotonic()))
            return link.node
        return None

    async def flush(self, since: float) -> None:
        """Have on disk what was sampled until a second after ``since`` (monotonic seconds)."""
        await asyncio.gather(*(monitor.flush(since) for monitor in self.monitors))
        await asyncio.to_thread(self.recorder.flush)

    async def close(self) -> None:
        """End the monitors and write what is left.  Never raises."""
        for task in self._nodes.values():
            if not task.done():
                task.cancel()
        await asyncio.gather(*self._nodes.values(), return_exceptions=True)
        await asyncio.gather(*(monitor.close() for monitor in self.monitors), return_exceptions=True)
        try:
            await asyncio.to_thread(self.recorder.flush)
        except Exception as error:  # noqa: BLE001 -- a full disk is no reason to fail a sweep that is done
            self.trouble(error)

    def trouble(self, error: BaseException) -> None:
        """Say it, once however often it happens; a full disk stops the sweep, which says so."""
        if is_disk_full(error):
            return
        line = f"telemetry: {type(error).__name__}: {error}"[:300]
        if line not in self._told:
            self._told.add(line)
            self._say(line)

    async def _watch(self, node_id: str) -> MonitorLink | NodeInfo:
        if self._local:
            bare = await asyncio.to_thread(node_without_meters, node_id)
            if bare is not None:
                await asyncio.to_thread(self.recorder.keep, 0, bare, Batch([], read_clocks()))
                return bare
        return MonitorLink(node_id, self._keep, self._say, estimate=self._estimate)

    def _keep(self, incarnation: int, node: NodeInfo, batch: Batch) -> None:
        self._latest.add(node, batch)
        self.recorder.keep(incarnation, node, batch)


class PoolWatch:
    """The replicas of one pool: a line for each of their lives.  Failures are said and change nothing."""

    def __init__(self, sweep: SweepTelemetry, deployment: Deployment, runs: tuple[str, ...]) -> None:
        self.lives: list[EngineLife] = []
        self._sweep = sweep
        self._deployment = deployment
        self._runs = runs
        self._shape: ShapeResult | None = None

    def placed(self, facts: ActorFacts) -> None:
        """A replica has its place: its node is sampled from now on, while the engine starts."""
        self._sweep.watch_node(facts.node_id)

    async def ready(self, engine_id: str, facts: ActorFacts, info: EngineInfo, concurrency: int) -> None:
        """A replica is about to be asked.  Returns within seconds and never raises."""
        try:
            node = await self._sweep.node(facts.node_id)
            life = await asyncio.to_thread(self._life, engine_id, facts, concurrency, node)
            await asyncio.to_thread(self._sweep.recorder.engine, life)
            self.lives.append(life)
        except Exception as error:  # noqa: BLE001 -- nothing of this may keep a replica from serving
            self._sweep.trouble(error)

    def counted(self, engine_id: str, counters: WorkCounters) -> None:
        """What the last life of a replica says it did: put beside what is worked out of its requests."""
        for life in self.lives[::-1]:
            if life.engine_id == engine_id:
                life.counters = asdict(counters)
                return

    def end_lives(self) -> None:
        """The pool is closed.  Raises ``OSError``."""
        at = time.time()
        for life in self.lives:
            if math.isinf(life.ended_at):
                self._sweep.recorder.ended(life, at)

    def _life(self, engine_id: str, facts: ActorFacts, concurrency: int, node: NodeInfo | None) -> EngineLife:
        deployment = self._deployment
        config = deployment.engine_config
        own = () if facts.spans_nodes else own_devices(deployment, node, facts.visible_gpus)
        if self._shape is None:
            self._shape = shape_of(deployment)
        shape = self._shape.shape
        total, active = parameter_counts(deployment, shape)
        batched = config.engine_args.get("max_num_batched_tokens")
        return EngineLife(
            engine_id=engine_id,
            node_id=facts.node_id,
            model=deployment.model,
            ready_at=time.time(),
            device_ids=tuple(device.device_id for device in own),
            energy_reason=_OVER_NODES if facts.spans_nodes else "",
            concurrency=concurrency,
            runs=self._runs,
            shape=shape,
            shape_reason=self._shape.reason,
            peak=peak_of(deployment, node, own, shape.compute_dtype if shape else "bf16"),
            devices=max(1, math.ceil(deployment.gpus_per_replica)),
            max_batched_tokens=batched if isinstance(batched, int) else None,
            param_count_b=total,
            active_params_b=active,
            tensor_parallel=deployment.tensor_parallel,
            judge=not self._runs,
            placed_monotonic=facts.placed_monotonic,
            stretch=self._sweep.recorder.stretch,
        )


class DeploymentWatch(PoolWatch):
    """One deployment's replicas and what becomes of their telemetry."""

    ended_at = math.inf
    """Unix seconds."""
    stale = False
    """A judge answered after the end what it was asked before."""

    async def ended(self) -> bool:
        """The pool is closed: work the figures of its runs out.  Whether there are any.  Never raises."""
        if not self.lives:
            return False
        try:
            self.end_lives()
            self.ended_at = time.time()
            await self._sweep.flush(time.monotonic())
            for run in self._runs:
                await self._sweep.learn(run, self._deployment)
            return await self._sweep.work_out(self._runs, self._sweep.recorder.stretch)
        except Exception as error:  # noqa: BLE001 -- the runs have their results without it
            self._sweep.trouble(error)
            return False

    async def ended_for_all(self) -> bool:
        """The sweep is over: once more, where a device was shared with somebody who was asked after the end.

        What was still in flight there then was not known.  Whether anything has changed.  Never raises.
        """
        try:
            overdue = [await asyncio.to_thread(is_overdue, self._sweep.directory, run) for run in self._runs]
            if not self.lives or not (self.stale or any(overdue)):
                return False
            return await self._sweep.work_out(self._runs)
        except Exception as error:  # noqa: BLE001 -- the runs have their results without it
            self._sweep.trouble(error)
            return False


class JudgeWatch(PoolWatch):
    """The replicas of a judge that computes on the cluster: its requests take part in the attribution."""

    def __init__(self, sweep: SweepTelemetry, deployment: Deployment) -> None:
        super().__init__(sweep, deployment, ())

    async def answered(self, generations: Sequence[Generation]) -> None:
        """Keep who was asked when, and for how many tokens.  Never raises."""
        sent = [at for each in generations if (at := each.timeline.sent_at) is not None]
        for watch in self._sweep.watches:
            watch.stale = watch.stale or min(sent, default=math.inf) < watch.ended_at < math.inf
        try:
            await asyncio.to_thread(self._sweep.recorder.judged, generations)
        except Exception as error:  # noqa: BLE001 -- a verdict does not depend on it
            self._sweep.trouble(error)

    async def closed(self) -> None:
        """One life of the judge is over.  Never raises."""
        try:
            await asyncio.to_thread(self.end_lives)
        except Exception as error:  # noqa: BLE001 -- verdicts do not depend on it
            self._sweep.trouble(error)


def _is_measured(deployment: Deployment) -> bool:
    return deployment.computes_here and any(run.config.telemetry for run in deployment.runs)
