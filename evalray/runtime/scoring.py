"""From a finished generation to a verdict: rules inline, isolated scorers and judges beside.

Whatever a scorer raises is that sample's ``scorer_error``; a judge's call that fails is its
``judge_error``.  Answers that wait for an isolated scorer are bounded: when there are too many,
generation waits for them.  A judge never holds generation up: where its queue is full the answer is
refused here, stays in the journal, and is brought again when there is room.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from evalray.errors import JudgeError
from evalray.runtime.breaker import CircuitBreaker
from evalray.runtime.judge_backend import AskedJudge, JudgeBackend
from evalray.runtime.judge_pool import JudgePool, QuestionDropped, Room
from evalray.runtime.policy import RuntimePolicy
from evalray.runtime.progress import RunProgress
from evalray.scorers import (
    Answer,
    IsolationPool,
    JudgeCall,
    Scorer,
    ScorerSpec,
    failed_score,
    score_of,
    verdict_of,
)
from evalray.threads import in_thread
from evalray.types import EvalRecord, Generation, Score


@dataclass(slots=True, frozen=True)
class RunScorer:
    """A run's scorer, built, with what another process needs to build it again, and its judge."""

    scorer: Scorer
    spec: ScorerSpec
    fingerprint: str
    judge: JudgePool | None = None
    backend: JudgeBackend | None = None
    """What a scorer that calls its judge itself was built with."""
    from_python: bool = False
    """Made by the caller: another process cannot build it."""

    @property
    def blocks(self) -> bool:
        """Must be assessed in a thread."""
        return self.scorer.needs_backend or (self.from_python and self.scorer.isolated)

    @property
    def isolated(self) -> bool:
        return self.scorer.isolated and not self.blocks


class RunJudging:
    """How judging goes for one run: what is waiting, and whether it was given up."""

    def __init__(self, progress: RunProgress, threshold: int) -> None:
        self.stopped = ""
        """Why the rest of the run is not judged: the same failure again and again."""
        self.problem = ""
        """Why the judge cannot be asked at all."""
        self._progress = progress
        self._breaker = CircuitBreaker(threshold)

    def waiting(self, change: int) -> None:
        self._progress.judging += change

    def succeeded(self) -> None:
        self._breaker.success()

    def failed(self, judge: str, generation: Generation) -> bool:
        """Count a failed call of ``judge``; whether judging ends with it."""
        kind, message = generation.error_kind or "engine", generation.error or ""
        if self.stopped or not self._breaker.failure(kind, message):
            return False
        self.stopped = f"judge {judge}: circuit breaker: {self._breaker.reason}; the same command continues"
        return True


@dataclass(slots=True)
class StoredVerdict:
    """What an earlier verdict on the same answer kept of the judge."""

    metadata: dict[str, Any]
    judge: dict[str, Any] | None

    def replies(self, scorer: Scorer, number: int) -> list[str] | None:
        """The judge's replies to ``number`` prompts; ``None`` where it kept none, or of another call."""
        kept = (self.judge or {}).get("replies")
        for found in (kept, scorer.stored_replies(self.metadata)):
            if isinstance(found, list) and len(found) == number and all(isinstance(r, str) for r in found):
                return found
        return None


@dataclass(slots=True)
class ScoringTask:
    """One answer to score.  ``done`` takes the verdict and what the judge took, ``dropped`` ends it
    without one; both in the driver's loop."""

    scorer: RunScorer
    record: EvalRecord
    answer: Answer
    judging: RunJudging
    done: Callable[[Score, dict[str, Any] | None], None]
    dropped: Callable[[], None]
    stored: StoredVerdict | None = None


def answer_of(generation: Generation) -> Answer:
    """What a scorer may see of a generation that has no error."""
    return Answer(generation.model_answer, generation.finish_reason)


class ScoringDesk:
    """Scores at once where a rule can; the rest waits, bounded, for a worker or a judge."""

    def __init__(self, policy: RuntimePolicy, say: Callable[[str], None] = lambda line: None) -> None:
        self._pool = IsolationPool(workers=policy.scoring_workers)
        self._backlog: asyncio.Queue[ScoringTask] = asyncio.Queue(policy.scoring_backlog)
        self._number = policy.scoring_workers
        self._workers: list[asyncio.Task[None]] = []
        self._say = say
        self._threads = Room(policy.judge_threads)
        self._thread_seconds = policy.judge_thread_seconds
        self._judging: set[asyncio.Task[None]] = set()

    async def score(self, task: ScoringTask, *, wait: bool = False) -> bool:
        """Returns once the answer is scored or waits its turn; held up while the backlog is full.

        ``False`` where it needs a judge whose queue is full, unless it is to ``wait`` for room.
        """
        run = task.scorer
        if run.isolated:
            if not self._workers:
                self._workers = [asyncio.create_task(self._work()) for _ in range(self._number)]
            await self._backlog.put(task)
            return True
        if run.blocks:
            return await self._begin(self._threads, task, wait, self._assess_in_thread)
        try:
            verdict = verdict_of(lambda: run.scorer.assess(task.record, task.answer))
        except Exception as error:  # noqa: BLE001 -- a scorer's fault is its sample's outcome
            task.done(failed_score(error), None)
            return True
        if not isinstance(verdict, JudgeCall):
            task.done(verdict, None)
            return True
        call = verdict
        if task.stored is not None and (replies := task.stored.replies(run.scorer, len(call.prompts))):
            task.done(_read(task, call, replies), task.stored.judge)
            return True
        judge = run.judge
        if judge is None:
            task.done(call.without_judge(), None)
            return True
        if reason := self._cannot_ask(task, judge):
            task.done(call.after_failure(reason), None)
            return True

        async def ask(task: ScoringTask) -> None:
            await self._ask(task, call, judge)

        return await self._begin(judge.room, task, wait, ask)

    async def close(self) -> None:
        """Drop what still waits; it is scored when the run is continued."""
        for worker in (*self._workers, *self._judging):
            worker.cancel()
        await asyncio.gather(*self._workers, *self._judging, return_exceptions=True)
        await self._pool.close()

    async def _work(self) -> None:
        while True:
            task = await self._backlog.get()
            try:
                score = await self._pool.assess(task.scorer.spec, task.record, task.answer)
            except (Exception, SystemExit) as error:  # noqa: BLE001 -- a scorer's fault is its sample's outcome
                score = failed_score(error)
            task.done(score, None)

    # -- judges -----------------------------------------------------------------------------

    async def _begin(self, room: Room, task: ScoringTask, wait: bool, work: Any) -> bool:
        if room.full and not wait:
            return False
        await room.enter()

        async def carry_out() -> None:
            try:
                await work(task)
            except (QuestionDropped, asyncio.CancelledError):
                task.dropped()
            finally:
                task.judging.waiting(-1)
                room.leave()

        task.judging.waiting(1)
        begun = asyncio.create_task(carry_out())
        self._judging.add(begun)
        begun.add_done_callback(self._judging.discard)
        return True

    def _cannot_ask(self, task: ScoringTask, judge: JudgePool) -> str:
        if judge.failure:
            task.judging.problem = judge.failure
        return task.judging.stopped or judge.failure

    async def _ask(self, task: ScoringTask, call: JudgeCall, judge: JudgePool) -> None:
        if reason := self._cannot_ask(task, judge):
            task.done(call.after_failure(reason), None)
            return
        began = time.monotonic()
        try:
            generations = await judge.ask(call.prompts, task.judging)
        except JudgeError as error:
            self._cannot_ask(task, judge)
            task.done(call.after_failure(str(error)), None)
            return
        took = _what_it_took(judge, generations, time.monotonic() - began)
        failed = self._count(task, judge, generations)
        if failed is not None:
            task.done(call.after_failure(f"judge {judge.model}: {failed.error}"), took)
        else:
            task.done(_read(task, call, [generation.model_answer for generation in generations]), took)

    def _count(
        self, task: ScoringTask, judge: JudgePool, generations: Sequence[Generation]
    ) -> Generation | None:
        """Tell the run's breaker; the last failed call, if any."""
        failed = next((one for one in reversed(generations) if one.error is not None), None)
        if failed is None:
            task.judging.succeeded()
        elif task.judging.failed(judge.model, failed):
            self._say(task.judging.stopped)
            judge.withdraw(task.judging, task.judging.stopped)
        return failed

    async def _assess_in_thread(self, task: ScoringTask) -> None:
        run, asked, began = task.scorer, AskedJudge(task.judging), time.monotonic()
        if run.judge is not None and (reason := self._cannot_ask(task, run.judge)):
            task.done(JudgeCall(()).after_failure(reason), None)
            return

        def assess() -> Score | JudgeCall:
            with run.backend.recording(asked) if run.backend is not None else contextlib.nullcontext():
                return verdict_of(lambda: run.scorer.assess(task.record, task.answer))

        try:
            verdict = await asyncio.wait_for(in_thread(assess), self._thread_seconds)
        except TimeoutError:
            verdict = failed_score(TimeoutError(f"no verdict within {self._thread_seconds:g} s"))
        except Exception as error:  # noqa: BLE001 -- a scorer's fault is its sample's outcome
            verdict = failed_score(error)
        if asked.dropped:
            raise QuestionDropped
        took = None
        if run.judge is not None and asked.generations:
            took = _what_it_took(run.judge, asked.generations, time.monotonic() - began)
            self._count(task, run.judge, asked.generations[-1:])
        if run.judge is not None:
            self._cannot_ask(task, run.judge)
        task.done(verdict.without_judge() if isinstance(verdict, JudgeCall) else verdict, took)


def _what_it_took(judge: JudgePool, generations: Sequence[Generation], seconds: float) -> dict[str, Any]:
    """The ``judge`` of a score line.  A figure is ``None`` where no reply had it."""

    def total(name: str) -> Any:
        values = [getattr(generation, name) for generation in generations]
        known = [value for value in values if value is not None]
        return sum(known) if known else None

    sent = [g.timeline.latency_seconds for g in generations if g.timeline.latency_seconds is not None]
    return {
        "model": judge.model,
        "engine": judge.judge.deployment.engine_config.engine,
        "calls": len(generations),
        "attempts": total("attempts"),
        "prompt_tokens": total("prompt_tokens"),
        "completion_tokens": total("completion_tokens"),
        "cost_usd": total("cost_usd"),
        "latency_seconds": max(sent) if sent else None,
        "wall_seconds": seconds,
        "replies": [generation.model_answer for generation in generations if generation.error is None],
    }


def _read(task: ScoringTask, call: JudgeCall, replies: list[str]) -> Score:
    try:
        scorer = task.scorer.scorer
        return score_of(lambda: scorer.read_verdict(task.record, task.answer, call, replies))
    except Exception as error:  # noqa: BLE001 -- a scorer's fault is its sample's outcome
        return failed_score(error)
