"""The sweep: deployments in the order of the plan, side by side where resources allow.

Blocking from outside, one event loop inside.  Ray starts in its thread while the first data loads, but
not where no cell can run.
Whatever happens, what is journaled stays, and the result says how every cell ended.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from dataclasses import replace

from evalray.errors import DiskFullError, PlacementError, StoreError
from evalray.plan import Deployment, Plan
from evalray.runtime.admission import Admission, Claim
from evalray.runtime.budget import Budget
from evalray.runtime.cluster import RayCluster
from evalray.runtime.deployment import INTERRUPTED, DeploymentRun
from evalray.runtime.judge_pool import JudgeSurroundings
from evalray.runtime.judges import Judges
from evalray.runtime.placement import describe_missing, fitting_replicas, settled
from evalray.runtime.policy import RuntimePolicy
from evalray.runtime.progress import RunProgress, SweepProgress
from evalray.runtime.response_cache import ResponseCache
from evalray.runtime.result import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_SKIPPED,
    EXIT_STOPPED,
    RunOutcome,
    SweepResult,
)
from evalray.runtime.scoring import RunScorer
from evalray.runtime.stop import stop_signals
from evalray.runtime.surroundings import Surroundings
from evalray.runtime.sweep_info import sweep_info
from evalray.runtime.telemetry import SweepTelemetry
from evalray.runtime.tracker import Tracker
from evalray.store import SweepStore
from evalray.telemetry import LatestReadings
from evalray.types import Outcome
from evalray.wording import counted

_TRACK_SECONDS = 10.0


def run_sweep(
    plan: Plan,
    *,
    fresh: bool = False,
    progress: SweepProgress | None = None,
    on_message: Callable[[str], None] | None = None,
    tracker: Tracker | None = None,
    policy: RuntimePolicy | None = None,
    on_kill: Callable[[], None] | None = None,
) -> SweepResult:
    """Run a plan to its end, or continue it; blocks.

    ``progress`` is kept up to date; ``on_message`` gets one line at a time.  In the main thread
    SIGINT and SIGTERM stop the sweep: once in order (exit code 130), twice now; then ``on_kill`` is
    called, in the handler, before the process ends.

    Raises :class:`ConfigError` for a scorer that cannot be built, :class:`StoreError` where the
    sweep directory cannot be used.  Everything later is in the result.
    """
    policy = policy or RuntimePolicy()
    judges = Judges(plan, policy)
    scorers = judges.scorers_of(plan)
    store = SweepStore.open(plan.directory, fresh=fresh)
    sweep = _Sweep(plan, scorers, judges, store, progress or SweepProgress(), on_message, tracker, policy)
    result: SweepResult | None = None
    try:
        sweep.on_kill = on_kill or (lambda: None)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            result = runner.run(sweep.run())
    finally:
        _close(sweep, result)
    return result


def _close(sweep: _Sweep, result: SweepResult | None) -> None:
    """A journal that cannot be closed in order is said, and never hides how the sweep ended."""
    try:
        sweep.store.close()
    except StoreError as error:
        if result is not None:
            if sweep.is_news(error):
                result.errors.append(str(error))
            result.disk_full = sweep.disk_full
            result.exit_code = result.exit_code or EXIT_FAILED


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class _Sweep:
    def __init__(
        self,
        plan: Plan,
        scorers: list[list[RunScorer]],
        judges: Judges,
        store: SweepStore,
        progress: SweepProgress,
        on_message: Callable[[str], None] | None,
        tracker: Tracker | None,
        policy: RuntimePolicy,
    ) -> None:
        self.plan = plan
        self.store = store
        self.progress = progress
        self.policy = policy
        self.tracker = tracker
        self.say = on_message or (lambda line: None)
        store.on_begun_beside = self.say
        self.interrupted = False
        self.errors: list[str] = []
        self.disk_full = False
        self._store_failed = False
        self.budget = Budget(plan.max_cost_usd, plan.max_tokens_total, self._budget_reached)
        self.on_kill: Callable[[], None] = lambda: None
        self._cluster = RayCluster(plan.address)
        self._take_signals_back: Callable[[], None] = lambda: None
        self._connecting: asyncio.Task[Admission] | None = None
        self._scorers = scorers
        self._judges = judges
        self._runs: list[DeploymentRun] = []

    async def run(self) -> SweepResult:
        loop = asyncio.get_running_loop()
        await asyncio.to_thread(self.budget.count_journals, self.store.directory)
        cache = None
        if (folder := self.plan.cache_directory) is not None:
            cache = await asyncio.to_thread(ResponseCache, folder, self.store.directory, self.say)
        telemetry = SweepTelemetry(
            self.store.directory,
            self.say,
            local=self.plan.address is None,
            estimate=self.plan.telemetry.estimate,
            latest=LatestReadings(self.progress.devices),
        )
        around = Surroundings(
            store=self.store,
            progress=self.progress,
            policy=self.policy,
            tracker=self.tracker,
            say=self.say,
            place=self._place,
            admit=lambda claim: self._admission().admit(claim),
            placement_seconds=self.plan.placement_timeout_seconds,
            budget=self.budget,
            cache=cache,
            copy_results_to=self.plan.copy_results_to,
            telemetry=telemetry,
            expect=self._connect,
            engines_start_here=self.plan.address is None,
        )
        self._runs = [
            DeploymentRun(deployment, scorers, around, number)
            for number, (deployment, scorers) in enumerate(
                zip(self.plan.deployments, self._scorers, strict=True)
            )
        ]
        self._judges.open(
            loop,
            JudgeSurroundings(
                policy=self.policy,
                progress=self.progress,
                say=self.say,
                place=self._place,
                admit=lambda claim: self._admission().admit(claim),
                contended=lambda: self._admission().contended,
                placement_seconds=self.plan.placement_timeout_seconds,
                watch=lambda judge: telemetry.watch_of_judge(judge, self.plan.deployments),
            ),
        )
        self.progress.sweep_id = self.plan.sweep_id
        self.progress.runs = [cell.progress for run in self._runs for cell in run.cells]
        self.progress.runs += [
            RunProgress(p.config.benchmark, p.config.model, state="skipped", message=p.reason)
            for p in self.plan.skipped
        ]

        def stop_soon() -> None:
            loop.call_soon_threadsafe(self._stop)

        with stop_signals(stop_soon, self._kill) as self._take_signals_back:
            try:
                if self.budget.reached:
                    self._budget_reached(self.budget.reached)
                await self._run_deployments()
                await self._settle_telemetry()
            finally:
                if cache is not None:
                    await asyncio.to_thread(cache.close)
                self.progress.phase = "closing"
                await telemetry.close()
                await self._judges.close()
                if self._connecting is not None:
                    self._connecting.cancel()
                    await asyncio.gather(self._connecting, return_exceptions=True)
                await self._cluster.close(say=self.say)
                gc.unfreeze()
        return self._result()

    async def _run_deployments(self) -> None:
        if not self.plan.stored_only:
            await asyncio.to_thread(lambda: self.store.write_sweep(sweep_info(self.plan)))
        if self.tracker is not None:
            self.tracker.sweep_started(self.store.directory)
        self.progress.phase = "loading data"
        # One more than run at once: the next has its data ready when its turn comes.
        window = asyncio.Semaphore(self.policy.parallel_deployments + 1)
        beside = [asyncio.create_task(self._track()), asyncio.create_task(self._watch_cluster())]
        tasks = [asyncio.create_task(self._run_one(run, window)) for run in self._runs]
        try:
            results = await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            for task in beside:
                task.cancel()
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, StoreError):
                raise result

    async def _settle_telemetry(self) -> None:
        """Joules of devices that several deployments used, once all of them have ended."""
        for run in self._runs:
            try:
                await run.settle_telemetry()
            except StoreError as error:
                self.errors.append(str(error))

    async def _run_one(self, run: DeploymentRun, window: asyncio.Semaphore) -> None:
        async with window:
            try:
                await run.run()
            except StoreError as error:
                self._stop_without_store(error)
                raise

    # -- Ray --------------------------------------------------------------------------------

    def _connect(self) -> asyncio.Task[Admission]:
        if self._connecting is None:
            self.progress.phase = "starting Ray and loading data"
            self._connecting = asyncio.create_task(self._open_cluster())
        return self._connecting

    async def _open_cluster(self) -> Admission:
        try:
            await self._cluster.connect(self.policy.connect_seconds)
        finally:
            self._take_signals_back()
        # Going through all that was imported by now takes tens of milliseconds, in which no request is sent.
        gc.freeze()
        nodes = await asyncio.to_thread(self._cluster.nodes)
        return Admission(nodes, self.policy.parallel_deployments)

    async def _place(self, claim: Claim) -> Claim:
        """The claim as the cluster can meet it: as many replicas, spread over nodes where they must be."""
        await asyncio.shield(self._connect())
        nodes = await asyncio.to_thread(self._cluster.nodes)
        need = settled(claim.need, nodes, may_grow=self._cluster.elastic)
        if need.spread:
            self.say(f"a replica needs {need}, more than any node has: it is placed over several")
        if self._cluster.elastic:
            return replace(claim, need=need)
        fitting = fitting_replicas(need, nodes)
        if not fitting:
            raise PlacementError(describe_missing(need, nodes, {}))
        if fitting < claim.replicas:
            self.say(f"{fitting} of {counted(claim.replicas, 'replica')} fit: each needs {need}")
        return replace(claim, need=need, replicas=min(fitting, claim.replicas))

    def _admission(self) -> Admission:
        return self._connect().result()

    # -- stopping ---------------------------------------------------------------------------

    def _stop(self) -> None:
        self.interrupted = True
        self.progress.stopping = True
        self.say(
            f"stopping: waiting up to {self.policy.drain_seconds:g} s for requests in flight; once more stops now"
        )
        for run in self._runs:
            run.stop(INTERRUPTED)
        self._judges.stop()

    async def _watch_cluster(self) -> None:
        """Without a node nothing can go on: every deployment ends as after its breaker, to be continued."""
        reason = await self._cluster.watch()
        self.say(f"stopping: {reason}")
        self.progress.stopping = True
        self.errors.append(reason)
        for run in self._runs:
            if any(cell.outcome is None for cell in run.cells):
                run.tripped = True
                run.stop(reason)
        self._judges.stop()

    def _stop_without_store(self, error: StoreError) -> None:
        """Nothing more can be kept: every deployment ends, to be continued."""
        self._store_failed = True
        self.progress.stopping = True
        if self.is_news(error):
            self.errors.append(str(error))
        for run in self._runs:
            run.stop(self.errors[0])
        self._judges.stop()

    def is_news(self, error: StoreError) -> bool:
        """Whether it was not told yet.  A full disk refuses every file of the sweep: that is one error."""
        told = str(error) in self.errors
        if isinstance(error, DiskFullError):
            told, self.disk_full = told or self.disk_full, True
        return not told

    def _kill(self) -> None:
        try:
            self.store.rescue()
            self.on_kill()
        finally:
            for run in self._runs:
                if run.pool is not None:
                    run.pool.kill()
            self._judges.kill()

    def _budget_reached(self, reason: str) -> None:
        if self._runs:  # else it was reached by an earlier process: said once they are there
            self.say(reason)
            self.progress.stopping = True
            for run in self._runs:
                run.halt(reason)
            self._judges.stop()

    async def _track(self) -> None:
        while self.tracker is not None:
            await asyncio.sleep(_TRACK_SECONDS)
            for run in self._runs:
                for cell in run.cells:
                    if cell.progress.state == "running":
                        self.tracker.run_updated(cell.store.directory, cell.metrics())

    # -- the result -------------------------------------------------------------------------

    def _result(self) -> SweepResult:
        outcomes = [
            self._outcome(cell.outcome, run.deployment, index)
            for run in self._runs
            for index, cell in enumerate(run.cells)
        ]
        outcomes += [
            RunOutcome(p.config.benchmark, p.config.model, "unsupported", reason=p.reason)
            for p in self.plan.skipped
        ]
        errors = [*self.errors]
        errors += [
            f"{o.benchmark} on {o.model}: {o.reason}" for o in outcomes if o.status == "failed" and o.reason
        ]
        return SweepResult(
            self.plan.sweep_id,
            self.store.directory,
            self._exit_code(outcomes),
            outcomes,
            list(dict.fromkeys(errors)),
            larger_budget=self.budget.larger() if any(o.status == "partial" for o in outcomes) else {},
            disk_full=self.disk_full,
            nothing_ran=self._connecting is None and not any(map(_has_samples, outcomes)),
        )

    def _outcome(self, outcome: RunOutcome | None, deployment: Deployment, index: int) -> RunOutcome:
        if outcome is not None:
            return outcome
        config = deployment.runs[index].config
        reason = self.errors[0] if self.errors else INTERRUPTED
        return RunOutcome(config.benchmark, config.model, "partial", reason=reason)

    def _exit_code(self, outcomes: list[RunOutcome]) -> int:
        if self.interrupted:
            return EXIT_INTERRUPTED
        tripped = any(run.tripped or any(cell.judging.stopped for cell in run.cells) for run in self._runs)
        if tripped or self._store_failed:
            return EXIT_STOPPED
        if self.errors or any(outcome.status == "failed" for outcome in outcomes):
            return EXIT_FAILED
        if any(outcome.status in ("skipped", "unsupported") for outcome in outcomes):
            return EXIT_SKIPPED
        if self.budget.reached and any(outcome.status == "partial" for outcome in outcomes):
            return EXIT_SKIPPED
        return EXIT_DONE


def _has_samples(outcome: RunOutcome) -> bool:
    """Whether something of the run is done, in this process or before it."""
    counts = outcome.summary.outcomes if outcome.summary is not None else {}
    return any(number for name, number in counts.items() if name != Outcome.SKIPPED)
