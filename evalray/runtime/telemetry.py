"""Telemetry of a sweep while it runs: which engine computes where, and a monitor for each of those nodes.

Only engines that compute on the cluster's own devices are watched; for servers elsewhere nothing starts.
No failure in here reaches a run: it is said once, and figures are missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from evalray.engines import EngineInfo, WorkCounters, resolve_model_path
from evalray.errors import EvalRayError
from evalray.plan import Deployment
from evalray.runtime.actor import ActorFacts
from evalray.runtime.monitor import MonitorLink, node_without_meters
from evalray.runtime.recording import EngineLife, Recorder
from evalray.runtime.telemetry_figures import figures_of_runs
from evalray.store import is_disk_full
from evalray.telemetry import (
    Batch,
    DeviceInfo,
    DeviceKind,
    LatestReadings,
    NodeInfo,
    Peak,
    ShapeResult,
    load_probe,
    match_of_all,
    model_shape,
    read_clocks,
    resolve_peak,
    visible_gpus,
)

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
        self._nodes: dict[str, asyncio.Task[MonitorLink | NodeInfo]] = {}
        self._told: set[str] = set()

    @property
    def monitors(self) -> list[MonitorLink]:
        """The monitors that were started."""
        done = [task.result() for task in self._nodes.values() if task.done() and not task.exception()]
        return [each for each in done if isinstance(each, MonitorLink)]

    def watch_of(self, deployment: Deployment, runs: Sequence[str]) -> DeploymentWatch | None:
        """Whoever is told of a deployment's replicas; ``None`` where nothing of it is to be measured."""
        wanted = any(run.config.telemetry for run in deployment.runs)
        if not wanted or not (deployment.gpus_per_replica or deployment.exclusive):
            return None
        return DeploymentWatch(self, deployment, tuple(runs))

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


class DeploymentWatch:
    """One deployment's replicas and what becomes of their telemetry."""

    def __init__(self, sweep: SweepTelemetry, deployment: Deployment, runs: tuple[str, ...]) -> None:
        self._sweep = sweep
        self._deployment = deployment
        self._runs = runs
        self._lives: list[EngineLife] = []
        self._shape: ShapeResult | None = None

    def placed(self, facts: ActorFacts) -> None:
        """A replica has its place: its node is sampled from now on, while the engine starts."""
        self._sweep.watch_node(facts.node_id)

    async def ready(self, engine_id: str, facts: ActorFacts, info: EngineInfo, concurrency: int) -> None:
        """A replica is about to be asked.  Returns within seconds and never raises."""
        try:
            node = await self._sweep.node(facts.node_id)
            life = await asyncio.to_thread(self._life, engine_id, facts, info, concurrency, node)
            await asyncio.to_thread(self._sweep.recorder.engine, life)
            self._lives.append(life)
        except Exception as error:  # noqa: BLE001 -- nothing of this may keep a replica from serving
            self._sweep.trouble(error)

    def counted(self, engine_id: str, counters: WorkCounters) -> None:
        """What the last life of a replica says it did: put beside what is worked out of its requests."""
        for life in self._lives[::-1]:
            if life.engine_id == engine_id:
                life.counters = asdict(counters)
                return

    async def ended(self) -> bool:
        """The pool is closed: work the figures of its runs out.  Whether there are any.  Never raises."""
        if not self._lives:
            return False
        try:
            at = time.time()
            for life in self._lives:
                self._sweep.recorder.ended(life, at)
            await self._sweep.flush(time.monotonic())
            sweep = self._sweep
            return bool(await asyncio.to_thread(figures_of_runs, sweep.directory, self._runs, sweep.trouble))
        except Exception as error:  # noqa: BLE001 -- the runs have their results without it
            self._sweep.trouble(error)
            return False

    def _life(
        self, engine_id: str, facts: ActorFacts, info: EngineInfo, concurrency: int, node: NodeInfo | None
    ) -> EngineLife:
        deployment = self._deployment
        config = deployment.engine_config
        own = () if facts.spans_nodes else _own_devices(deployment, node, facts.visible_gpus)
        if self._shape is None:
            self._shape = _shape_of(deployment)
        shape = self._shape.shape
        figures = deployment.runs[0].config.metadata
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
            peak=_peak_of(deployment, own, shape.compute_dtype if shape else "bf16"),
            devices=max(1, deployment.gpus_per_replica),
            max_batched_tokens=batched if isinstance(batched, int) else None,
            param_count_b=figures.get("param_count_b") or (shape.total_params / 1e9 if shape else None),
            active_params_b=figures.get("active_params_b")
            or (shape.active_matmul_params / 1e9 if shape and shape.weights.experts else None),
        )


def _own_devices(
    deployment: Deployment, node: NodeInfo | None, visible: str | None
) -> tuple[DeviceInfo, ...]:
    """The devices a replica computes on: the GPUs it sees, else the node's processors and their memory."""
    if node is None:
        return ()
    if deployment.gpus_per_replica:
        return visible_gpus(node.devices, visible) if visible is not None else visible_gpus(node.devices, "")
    return tuple(device for device in node.devices if device.kind is not DeviceKind.GPU)


def _shape_of(deployment: Deployment) -> ShapeResult:
    config, figures = deployment.engine_config, deployment.runs[0].config.metadata
    return model_shape(
        _model_files(config.path, config.model),
        param_count_b=figures.get("param_count_b"),
        active_params_b=figures.get("active_params_b"),
    )


def _model_files(path: str | None, model: str) -> Path | None:
    """Where the model's description is on this machine: its file or folder, or the hub's cache."""
    if path:
        with contextlib.suppress(EvalRayError, OSError, ValueError):
            return resolve_model_path(path)
        return Path(path) if Path(path).exists() else None
    if Path(model).exists():
        return Path(model)
    with contextlib.suppress(Exception):
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(model, "config.json")
        if isinstance(found, str):
            return Path(found).parent
    return None


def _peak_of(deployment: Deployment, own: Sequence[DeviceInfo], dtype: str) -> Peak:
    figures = deployment.runs[0].config.metadata
    gpus = [device for device in own if device.kind is DeviceKind.GPU]
    match = match_of_all(gpus) if gpus else None
    probe = None
    with contextlib.suppress(Exception):
        probe = (
            load_probe(f"cuda:{gpus[0].index}" if gpus else "cpu") if gpus or deployment.exclusive else None
        )
    return resolve_peak(
        dtype,
        match=match,
        probe=probe,
        suite_tflops=figures.get("gpu_peak_tflops"),
        suite_bandwidth_gb_s=figures.get("gpu_peak_bandwidth_gb_s"),
    )
