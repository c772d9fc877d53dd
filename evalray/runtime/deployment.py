"""One deployment from its data to its summaries: all runs of a model through one pool of engines.

The runs are one continuous stream, lowest first, so that the stragglers of one never leave an
engine idle while the next waits.  A run is finalized as soon as *it* is done.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from evalray.engines.base import EngineConfig, EngineInfo
from evalray.errors import (
    ConfigError,
    DatasetError,
    DiskFullError,
    EngineDied,
    EngineStartError,
    PlacementError,
    StoreError,
)
from evalray.plan import Deployment
from evalray.plan_notes import start_problem
from evalray.runtime.admission import Claim
from evalray.runtime.breaker import CircuitBreaker
from evalray.runtime.cell import Cell
from evalray.runtime.placement import replica_need
from evalray.runtime.pool import EnginePool
from evalray.runtime.queue import WorkItem
from evalray.runtime.replica import PoolSpec
from evalray.runtime.response_cache import ModelCache
from evalray.runtime.result import RunStatus
from evalray.runtime.scoring import RunScorer, ScoringDesk
from evalray.runtime.surroundings import Surroundings
from evalray.runtime.telemetry import DeploymentWatch
from evalray.runtime.verdicts import Verdicts
from evalray.types import Generation

INTERRUPTED = "interrupted; the same command continues"
_LET_OTHERS_EVERY = 64
#: Data that is missing or gated is refused sooner than this; what takes longer is being loaded.
_REFUSED_WITHIN_SECONDS = 1.0


class DeploymentRun:
    """See the module.  :meth:`run` never raises for what a cell or an engine does: cells say how they ended."""

    def __init__(
        self, deployment: Deployment, scorers: list[RunScorer], around: Surroundings, number: int
    ) -> None:
        self.deployment = deployment
        self.cells = [
            Cell(planned, deployment.engine_config, scorer, index)
            for index, (planned, scorer) in enumerate(zip(deployment.runs, scorers, strict=True))
        ]
        self.tripped = False
        """The circuit breaker of the engines opened."""
        self.stopped = ""
        """Why nothing more is begun."""
        self.failed: BaseException | None = None
        """Why nothing can be written any more."""
        self.pool: EnginePool | None = None
        self._around = around
        self._number = number
        self._breaker = CircuitBreaker(min(c.config.breaker_errors for c in self.cells))
        desk = ScoringDesk(around.policy, around.say)
        self._verdicts = Verdicts(self, desk, around.budget, around.policy.scoring_seconds)
        self._halted = ""
        self._cannot_start = ""
        """Why the engine would not start; found out before Ray is."""
        self._prepared = False
        self._cache: ModelCache | None = None
        self._waiting: asyncio.Task[Any] | None = None
        self._finishing: list[asyncio.Task[None]] = []
        self._watch: DeploymentWatch | None = None

    def stop(self, reason: str) -> None:
        """Hand out nothing more and come to an end."""
        self.stopped = self.stopped or reason
        if self.pool is not None:
            self.pool.stop()
        if self._waiting is not None:
            self._waiting.cancel()

    def halt(self, reason: str) -> None:
        """As :meth:`stop`, but what is not done is loaded all the same, so that it can be named."""
        self._halted = self._halted or reason
        if self._prepared:
            self.stop(reason)

    async def run(self) -> None:
        """Raises :class:`StoreError` only."""
        try:
            await self._prepare()
            self._prepared = True
            if self._halted:
                self.stop(self._halted)
            status: RunStatus | None = None
            reason = ""
            self._verdicts.begin(self._open_cells())
            try:
                await self._replay()
                if not self.stopped:
                    await self._generate()
                await self._verdicts.settle()
            except (EngineStartError, PlacementError, EngineDied) as error:
                await self._verdicts.settle()
                status, reason = "failed", f"{self.deployment.model}: {error}"
            finally:
                self._verdicts.end_rescoring()
            if self.stopped:
                status, reason = "partial", self.stopped
            await self._verdicts.close()
            await self._end_all(status, reason)
            await self._add_telemetry()
        finally:
            await self._verdicts.close()

    # -- before -----------------------------------------------------------------------------

    async def _prepare(self) -> None:
        around = self._around
        if around.engines_start_here:
            self._cannot_start = await asyncio.to_thread(start_problem, self.deployment.engine_config)
        for cell in self.cells:
            if self.stopped:
                return
            long_load = asyncio.get_running_loop().call_later(_REFUSED_WITHIN_SECONDS, self._expect_long_load)
            try:
                await asyncio.to_thread(cell.prepare, around.store)
            except DatasetError as error:
                cell.end("skipped" if error.gated else "failed", str(error))
            except DiskFullError:
                raise
            except (ConfigError, StoreError) as error:
                cell.end("failed", str(error))
            else:
                cell.progress.state = "waiting"
                if not cell.exhausted and not self._cannot_start and around.cache is None:
                    around.expect()
            finally:
                long_load.cancel()

    def _expect_long_load(self) -> None:
        """Ray starts beside it; but not for what may have its answers already."""
        around = self._around
        if not (self.stopped or self._cannot_start or around.store.resumed or around.cache is not None):
            around.expect()

    def _open_cells(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.outcome is None and cell.prepared]

    async def _generate(self) -> None:
        """Bring the engines up and work everything off.

        Raises :class:`PlacementError`, :class:`EngineStartError`, :class:`EngineDied`, :class:`StoreError`.
        """
        open_cells = self._open_cells()
        for cell in open_cells:
            self.check(cell)
        if not any(not cell.exhausted for cell in open_cells):
            return
        if self._cannot_start:
            raise EngineStartError(self._cannot_start)
        deployment, around = self.deployment, self._around
        wanted = Claim(replica_need(deployment), deployment.replicas, deployment.exclusive)
        claim = await self._or_stop(around.place(wanted))
        if claim is None:
            return
        admitted = around.admit(claim)
        if await self._or_stop(admitted.__aenter__(), or_value=True) is None:
            return
        try:
            if not self.stopped:
                await self._serve(claim)
        finally:
            await admitted.__aexit__(None, None, None)

    async def _or_stop(self, awaitable: Awaitable[Any], or_value: Any = None) -> Any:
        """The result (``or_value`` for ``None``), or ``None`` once the deployment is stopped."""
        self._waiting = asyncio.ensure_future(awaitable)
        try:
            if self.stopped:
                self._waiting.cancel()
            result = await self._waiting
            return or_value if result is None else result
        except asyncio.CancelledError:
            if self.stopped:
                return None
            raise
        finally:
            self._waiting = None

    async def _serve(self, claim: Claim) -> None:
        deployment, around = self.deployment, self._around
        config, seconds = self._engine_config(claim.replicas), around.placement_seconds
        spec = PoolSpec(deployment.model, config, claim.need, claim.replicas, deployment.in_flight, seconds)
        if around.telemetry is not None:
            names = [cell.store.name for cell in self._open_cells()]
            self._watch = around.telemetry.watch_of(deployment, names)
        pool = self.pool = EnginePool(
            spec,
            self,
            self._take_results,
            policy=around.policy,
            on_ready=self._engine_ready,
            say=around.say,
            watch=self._watch,
        )
        around.progress.replicas.extend(pool.progress)
        around.progress.phase = f"starting {deployment.model}"
        loop = asyncio.get_running_loop()
        for cell in self._open_cells():
            cell.start_prefetch(lambda: _ignore(loop.call_soon_threadsafe(pool.wake)))
        await pool.run()

    def _engine_config(self, replicas: int) -> EngineConfig:
        config = self.deployment.engine_config
        if config.path and Path(config.path).exists():
            # An actor has a working directory of its own.
            config = replace(config, path=str(Path(config.path).absolute()))
        if self.deployment.exclusive and config.num_threads is None and replicas > 1:
            config = replace(config, num_threads=max(1, (os.cpu_count() or 1) // replicas))
        return config

    def _engine_ready(self, info: EngineInfo) -> None:
        self._around.progress.phase = "running"
        for cell in self._open_cells():
            if not cell.finishing:
                cell.began(info)

    async def _replay(self) -> None:
        """Take from the response cache what it has.  Rescoring has begun by then, with what was there before."""
        around = self._around
        if around.cache is None or self.stopped:
            return
        cache = self._cache = await asyncio.to_thread(
            ModelCache.of, self.deployment.engine_config, around.cache, around.say
        )
        if cache is None:
            return
        for cell in self._open_cells():
            for number, finished in enumerate(cell.replay(cache.get), 1):
                await self._take_results([finished])
                if number % _LET_OTHERS_EVERY == 0:
                    await asyncio.sleep(0)

    # -- the source of the pool's work --------------------------------------------------------

    def take(self, limit: int) -> list[WorkItem]:
        items: list[WorkItem] = []
        for cell in self.cells:
            if cell.outcome is None and cell.prepared and not cell.exhausted:
                items += cell.take(limit - len(items))
                self.check(cell)
                if len(items) >= limit:
                    break
        return items

    def remaining(self) -> int | None:
        total = 0
        for cell in self._open_cells():
            count = cell.remaining
            if count is None:
                return None
            total += count
        return total

    def exhausted(self) -> bool:
        return all(cell.exhausted for cell in self._open_cells())

    # -- results ----------------------------------------------------------------------------

    async def _take_results(self, finished: list[tuple[WorkItem, Generation]]) -> None:
        if self.failed is not None:
            raise self.failed
        touched: dict[Cell, None] = {}
        for item, generation in finished:
            cell: Cell = item.tag[0]
            touched[cell] = None
            to_score = cell.add_generation(item, generation)
            self._around.budget.count(generation)
            if self._cache is not None:
                cell.keep(item, generation, self._cache.add)
            self._count_failures(generation)
            if to_score:
                _, position, epoch, record = item.tag
                await self._verdicts.score(cell, position, epoch, record, generation)
        for cell in touched:
            cell.store.flush()
            self.check(cell)
        if self._cache is not None:
            self._cache.flush()

    def _count_failures(self, generation: Generation) -> None:
        if generation.error is None:
            self._breaker.success()
        elif self._breaker.failure(generation.error_kind or "engine", generation.error) and not self.tripped:
            self.tripped = True
            reason = f"circuit breaker: {self._breaker.reason}; the same command continues"
            self._around.say(f"{self.deployment.model}: {reason}")
            self.stop(reason)

    # -- ends -------------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """A journal cannot be written: everything stops."""
        self.failed = self.failed or error
        self.stop(str(error))

    def check(self, cell: Cell) -> None:
        """Finalize a cell that is worked off, beside the others' work."""
        if cell.worked_off and not cell.finishing and not self.stopped and self.failed is None:
            cell.finishing = True
            self._finishing.append(asyncio.create_task(self._finish(cell, None, cell.error)))

    async def _end_all(self, status: RunStatus | None, reason: str) -> None:
        for cell in self.cells:
            if cell.finishing or cell.outcome is not None:
                continue
            if cell.prepared:
                cell.finishing = True
                self._finishing.append(asyncio.create_task(self._finish(cell, status, reason)))
            else:
                cell.end("skipped" if self.stopped else "failed", reason or self.stopped)
        ended = await asyncio.gather(*self._finishing, return_exceptions=True)
        for error in ended:
            if isinstance(error, BaseException):
                raise error

    async def _finish(self, cell: Cell, status: RunStatus | None, reason: str) -> None:
        cell.progress.state = "finalizing"
        if cell.error:
            status, reason = "failed", cell.error
        if self._watch is None:
            await self._catch_up(cell)
        summary = await asyncio.to_thread(cell.finalize, status, reason)
        if status == "partial" and not summary.outcomes.get("skipped"):
            status, reason = None, ""  # it was complete when the stop came
        if cell.judging.stopped and status is None:
            status, reason = "partial", cell.judging.stopped
        cell.end_with(summary, status, reason)
        if self._watch is None:
            await self._publish(cell)

    async def _add_telemetry(self) -> None:
        """Device figures, once all requests that shared the devices are known: rows and summaries anew."""
        if self._watch is None:
            return
        self._around.progress.phase = "working out energy and utilisation"
        found = await self._watch.ended()
        for cell in self._summarized():
            if found:
                await asyncio.to_thread(cell.finalize_again)
            await self._publish(cell)

    async def _catch_up(self, cell: Cell) -> None:
        """Device figures that an earlier process did not come to, or of which more is known now."""
        if self._around.telemetry is not None and cell.config.telemetry and self.deployment.computes_here:
            await self._around.telemetry.catch_up(cell.store.name, self.deployment)

    async def settle_telemetry(self) -> None:
        """The sweep is over: device figures once more, where others on the same devices ended later."""
        if self._watch is None or not await self._watch.ended_for_all():
            return
        for cell in self._summarized():
            await asyncio.to_thread(cell.finalize_again)
            await self._publish(cell)

    def _summarized(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.outcome is not None and cell.outcome.summary is not None]

    async def _publish(self, cell: Cell) -> None:
        """Hand on the cell's summary as it stands, and its rows."""
        around, outcome = self._around, cell.outcome
        if around.tracker is not None and outcome is not None and outcome.summary is not None:
            around.tracker.run_finished(cell.store.directory, outcome.summary)
        if around.copy_results_to is not None:
            await asyncio.to_thread(_copy_rows, cell.store.results_path, around.copy_results_to, around.say)


def _ignore(_: object) -> None:
    """For callbacks that must return nothing."""


def _copy_rows(source: Path, target: Path, say: Callable[[str], None]) -> None:
    """``-o``: the rows once more, where the user asked for them."""
    import shutil

    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, beside)
        beside.replace(target)
    except OSError as error:
        beside.unlink(missing_ok=True)
        say(f"the rows were not copied to {target}: {error.strerror or error}; they are in {source}")
