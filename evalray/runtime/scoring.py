"""From a finished generation to a verdict: rules inline, isolated scorers beside, judges to come.

Whatever a scorer raises is that sample's ``scorer_error``.  Answers that wait for a slow scorer are
bounded: when there are too many, generation waits for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from evalray.runtime.policy import RuntimePolicy
from evalray.scorers import Answer, IsolationPool, JudgeCall, Scorer, ScorerSpec
from evalray.types import EvalRecord, Generation, Outcome, Score


@dataclass(slots=True, frozen=True)
class RunScorer:
    """A run's scorer, built, with what another process needs to build it again."""

    scorer: Scorer
    spec: ScorerSpec
    fingerprint: str


@dataclass(slots=True)
class ScoringTask:
    """One answer to score; ``done`` takes the verdict, in the driver's loop."""

    scorer: RunScorer
    record: EvalRecord
    answer: Answer
    done: Callable[[Score], None]


def answer_of(generation: Generation) -> Answer:
    """What a scorer may see of a generation that has no error."""
    return Answer(generation.model_answer, generation.finish_reason)


class ScoringDesk:
    """Scores at once where a rule can; the rest goes through a bounded backlog to a few workers."""

    def __init__(self, policy: RuntimePolicy) -> None:
        self._pool = IsolationPool(workers=policy.scoring_workers)
        self._backlog: asyncio.Queue[ScoringTask] = asyncio.Queue(policy.scoring_backlog)
        self._number = policy.scoring_workers
        self._workers: list[asyncio.Task[None]] = []

    async def score(self, task: ScoringTask) -> None:
        """Returns once the answer is scored or waits its turn; held up while the backlog is full."""
        if not task.scorer.scorer.isolated:
            task.done(_assess(task))
            return
        if not self._workers:
            self._workers = [asyncio.create_task(self._work()) for _ in range(self._number)]
        await self._backlog.put(task)

    async def close(self) -> None:
        """Drop what still waits; it is scored when the run is continued."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        await self._pool.close()

    async def _work(self) -> None:
        while True:
            task = await self._backlog.get()
            try:
                score = await self._pool.assess(task.scorer.spec, task.record, task.answer)
            except Exception as error:  # noqa: BLE001 -- a scorer's fault is its sample's outcome
                score = _failed(error)
            task.done(score)


def _assess(task: ScoringTask) -> Score:
    try:
        verdict = task.scorer.scorer.assess(task.record, task.answer)
    except Exception as error:  # noqa: BLE001 -- a scorer's fault is its sample's outcome
        return _failed(error)
    return ask_judge(verdict) if isinstance(verdict, JudgeCall) else verdict


def ask_judge(call: JudgeCall) -> Score:
    """Where judges come in; without one the sample stays unjudged, and is judged on resume."""
    return Score(Outcome.JUDGE_ERROR, metadata={**call.metadata, "reason": "no judge configured"})


def _failed(error: Exception) -> Score:
    detail = f"{type(error).__name__}: {error}"[:500]
    return Score(Outcome.SCORER_ERROR, metadata={"reason": "exception", "error": detail})
