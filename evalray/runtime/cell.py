"""One cell of the matrix while it runs: its data, what is still to do, and its journal.

Everything happens in the driver's event loop, but for :meth:`Cell.prepare` and :meth:`Cell.finalize`,
which block and are run in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from evalray.datasets import DatasetProvider
from evalray.engines.base import EngineConfig, EngineInfo
from evalray.errors import DatasetError
from evalray.plan import PlannedRun
from evalray.runtime.opening import data_info, open_planned_run
from evalray.runtime.prefetch import Pending, Prefetched
from evalray.runtime.progress import RunProgress
from evalray.runtime.queue import WorkItem
from evalray.runtime.result import RunOutcome, RunStatus
from evalray.runtime.scoring import RunJudging, RunScorer, StoredVerdict
from evalray.store import (
    ENDED,
    JUDGE_PROBLEM,
    JUDGING_STOPPED,
    RunStore,
    SweepStore,
    finalize_run,
    why_failed,
)
from evalray.types import EvalRecord, Generation, GenerationRequest, Outcome, RunSummary, Score

Finished = tuple[WorkItem, Generation]

_STATES: dict[str, RunStatus] = {"complete": "complete", "partial": "partial", "failed": "failed"}
#: How far scoring is with a sample, in this process.
_UNTOUCHED, _TAKEN, _SPILLED = 0, 1, 2


class Cell:
    """See the module.  ``outcome`` is there once the cell has ended."""

    def __init__(self, planned: PlannedRun, engine: EngineConfig, scorer: RunScorer, number: int) -> None:
        self.planned = planned
        self.config = planned.config
        self.scorer = scorer
        self.progress = RunProgress(self.config.benchmark, self.config.model)
        self.outcome: RunOutcome | None = None
        self.in_flight = 0
        self.scoring = 0
        """Answers that are generated and not yet scored."""
        self.spilled = 0
        """Answers that found the judge's queue full: they lie in the journal until it has room."""
        self.has_spilled = asyncio.Event()
        self.rescoring = False
        """The journal is gone through for answers without a verdict."""
        self.judging = RunJudging(self.progress, self.config.breaker_errors)
        self.finishing = False
        self.error = ""
        """Why its data ended early, if it did."""
        self._why_failed = ""
        self._first_taken_at: float | None = None
        self._first: str | None = None
        """The request whose prompt and answer are shown."""
        self._engine = engine
        self._number = number
        self._provider: DatasetProvider | None = None
        self._store: RunStore | None = None
        self._pending: Iterator[Pending] | None = None
        self._prefetched: Prefetched | None = None
        self._remaining = 0
        self._taken = bytearray()
        self._head: tuple[dict[str, str], ...] = ()
        self._sampling = self.config.sampling

    # -- before -----------------------------------------------------------------------------

    def prepare(self, sweep: SweepStore) -> None:
        """Load the data and open the journal.  Blocks.

        Raises :class:`DatasetError`, :class:`ConfigError` or :class:`StoreError`.
        """
        self.progress.state = "loading"
        opened = open_planned_run(self.planned, self._engine, self.scorer, sweep)
        store, provider, epochs = opened.store, opened.provider, self.config.epochs
        if provider is not None:
            self._provider, self._head = provider, opened.head
            self._remaining = sum(
                not store.generation_done(position, epoch)
                for epoch in range(epochs)
                for position in range(provider.size())
            )
            self._pending = self._iterate(provider, store) if self._remaining else None
        self._taken = bytearray(store.manifest.planned)
        self._set_planned(store.manifest.num_records)
        self.progress.outcomes = store.resumed_outcomes()
        self.progress.resumed = self.progress.done
        self._store = store

    def _set_planned(self, records: int) -> None:
        """Show how many samples there are, and how many were asked for where these are more."""
        config, progress = self.config, self.progress
        progress.planned = records * config.epochs
        most = config.max_samples if config.record_ids is None else None
        progress.wanted = most * config.epochs if most is not None and records < most else None

    def start_prefetch(self, wake: Callable[[], None]) -> None:
        """For streamed data: read ahead from now on."""
        benchmark = self.planned.benchmark
        if benchmark is not None and benchmark.streaming and self._pending is not None and self._remaining:
            self._prefetched = Prefetched(self._pending, wake)

    def began(self, info: EngineInfo) -> None:
        """The engine is up; what it says of itself goes into ``run.json``."""
        store = self.store
        store.manifest.info |= {"engine_version": info.version, "engine_details": asdict(info)}
        store.manifest.write(store.files.manifest)

    @property
    def store(self) -> RunStore:
        assert self._store is not None
        return self._store

    @property
    def prepared(self) -> bool:
        return self._store is not None

    # -- work to hand out -------------------------------------------------------------------

    @property
    def exhausted(self) -> bool:
        return self._pending is None

    @property
    def remaining(self) -> int | None:
        return None if self._prefetched is not None else self._remaining

    def take(self, limit: int) -> list[WorkItem]:
        """The next requests, within the run's own ``concurrency``."""
        cap = self.config.concurrency
        if cap is not None:
            limit = min(limit, cap - self.in_flight)
        items: list[WorkItem] = []
        while len(items) < limit and (pending := self._next()) is not None:
            items.append(self._item(pending))
        if items and self._first_taken_at is None:
            self.store.begin_stretch()
            self.progress.state = "running"
            self._first_taken_at = time.monotonic()
            if self.progress.first_answer is None:
                self._first = items[0].request.request_id
                self.progress.first_prompt = items[0].request.messages[-1]["content"]
        self.in_flight += len(items)
        return items

    def _next(self) -> Pending | None:
        if self._pending is None:
            return None
        try:
            found = self._prefetched.next() if self._prefetched else next(self._pending, None)
        except DatasetError as error:
            self.error = str(error)
            self._end_of_data()
            return None
        if found is None:
            if self._prefetched is None or self._prefetched.ended:
                self._end_of_data()
                if self._provider is not None:
                    self._set_planned(self._provider.size())
            return None
        self._remaining -= 1
        if self._prefetched is None and self._remaining <= 0:
            self._end_of_data()
        return found

    def _end_of_data(self) -> None:
        self._pending = None
        self._remaining = 0

    def _item(self, pending: Pending) -> WorkItem:
        position, epoch, record = pending
        messages = (*self._head, {"role": "user", "content": record.problem})
        request = GenerationRequest(
            f"{self._number}:{position}:{epoch}", messages, self._sampling, self._engine.timeout_seconds
        )
        return WorkItem(request, (self, position, epoch, record))

    def replay(self, find: Callable[[GenerationRequest, int, str], Generation | None]) -> Iterator[Finished]:
        """Items that ``find`` has a reply to, given request, epoch and record id.  Streamed data has none.

        They are done with once they are added; :meth:`take` passes over them from then on.
        """
        benchmark, provider = self.planned.benchmark, self._provider
        if provider is None or self._pending is None or (benchmark is not None and benchmark.streaming):
            return
        for pending in self._iterate(provider, self.store):
            item = self._item(pending)
            _, epoch, record = pending
            generation = find(item.request, epoch, record.record_id)
            if generation is not None:
                item.dispatches = 1
                self.in_flight += 1
                self._remaining -= 1
                yield item, generation
        if self._remaining <= 0:
            self._end_of_data()

    def keep(
        self,
        item: WorkItem,
        generation: Generation,
        add: Callable[[GenerationRequest, int, str, Generation], None],
    ) -> None:
        """Give a reply to the response cache; streamed data is not looked up, and so not kept."""
        benchmark = self.planned.benchmark
        if benchmark is None or not benchmark.streaming:
            _, _, epoch, record = item.tag
            add(item.request, epoch, record.record_id, generation)

    def _iterate(self, provider: DatasetProvider, store: RunStore) -> Iterator[Pending]:
        """Epoch by epoch, so that a run that is stopped has whole ones."""
        for epoch in range(self.config.epochs):

            def is_done(position: int, epoch: int = epoch) -> bool:
                return store.generation_done(position, epoch)

            for position, record in provider.iter_pending(is_done):
                yield position, epoch, record

    # -- results ----------------------------------------------------------------------------

    def add_generation(self, item: WorkItem, generation: Generation) -> bool:
        """Journal it; whether it is to be scored."""
        _, position, epoch, record = item.tag
        self.in_flight -= 1
        progress = self.progress
        progress.cost_usd = _added(progress.cost_usd, generation.cost_usd)
        if generation.cached:
            progress.cached += 1
        else:
            progress.generated += 1
            progress.last_result_at = now = time.monotonic()
            if progress.first_request_at is None:
                progress.first_request_at = self._sent(generation, now)
        if not self.store.append_generation(position, epoch, item.dispatches, record, generation):
            return False
        if generation.error is not None:
            progress.outcomes[Outcome.ENGINE_ERROR] += 1
            if self._first == item.request.request_id:
                self._first = None
            return False
        if progress.first_answer is None and self._first in (None, item.request.request_id):
            # The prompt first: who sees the answer sees the prompt that it is to.
            progress.first_prompt = item.request.messages[-1]["content"]
            progress.first_answer = generation.raw_text
        if not generation.cached:
            progress.output_tokens += generation.completion_tokens or 0
        return True

    def _sent(self, generation: Generation, now: float) -> float:
        """When a reply's request was sent, on this process's monotonic clock; not before it was handed out."""
        sent_at, taken_at = generation.timeline.sent_at, self._first_taken_at
        if sent_at is None:
            return now if taken_at is None else taken_at
        began = now - max(0.0, time.time() - sent_at)
        return began if taken_at is None else max(began, taken_at)

    def take_to_score(self, position: int, epoch: int) -> bool:
        """Mark an answer as being scored; ``False`` where it was taken in this process already."""
        slot = position * self.config.epochs + epoch
        if self._taken[slot] == _TAKEN:
            return False
        if self._taken[slot] == _SPILLED:
            self.spilled -= 1
            self.judging.waiting(-1)
        self._taken[slot] = _TAKEN
        self.scoring += 1
        return True

    def spill(self, position: int, epoch: int) -> None:
        """The judge has no room for an answer that was taken: the journal keeps it."""
        self._taken[position * self.config.epochs + epoch] = _SPILLED
        self.scoring -= 1
        self.spilled += 1
        self.judging.waiting(1)
        self.has_spilled.set()

    def drop_score(self) -> None:
        """An answer that was taken gets no verdict in this process."""
        self.scoring -= 1

    def add_score(
        self, position: int, epoch: int, record: EvalRecord, score: Score, judge: dict[str, Any] | None
    ) -> None:
        self.scoring -= 1
        paid = judge.get("cost_usd") if judge is not None else None
        self.progress.judge_cost_usd = _added(self.progress.judge_cost_usd, paid)
        if self.store.append_score(position, epoch, record.record_id, score, judge):
            self.progress.outcomes[score.outcome] += 1

    def stored_verdict(self, position: int, epoch: int) -> StoredVerdict | None:
        """What an earlier verdict on the standing answer kept of the judge, where it is to be read again."""
        stored = self.planned.stored
        judge = self.scorer.judge
        name = judge.model if judge is not None else None
        line = stored.verdict(position, epoch, name) if stored is not None else None
        return StoredVerdict(line.get("metadata") or {}, line.get("judge")) if line is not None else None

    @property
    def worked_off(self) -> bool:
        """Nothing to hand out, in flight or to score."""
        return self.exhausted and not (self.in_flight or self.scoring or self.rescoring or self.spilled)

    # -- after ------------------------------------------------------------------------------

    def finalize(self, status: RunStatus | None, reason: str) -> RunSummary:
        """Write skipped samples (with ``reason``), rows and summary.  Blocks; ends the cell's store."""
        store, provider, manifest = self.store, self._provider, self.store.manifest
        if self.planned.stored is not None:
            self.planned.stored.close()
        if self._prefetched is not None:
            self._prefetched.close()
        store.end_stretch()
        manifest.info[ENDED] = {"status": status, "reason": reason} if status else None
        manifest.info[JUDGE_PROBLEM] = self.judging.stopped or self.judging.problem
        manifest.info[JUDGING_STOPPED] = bool(self.judging.stopped)
        if provider is not None:
            manifest.num_records = provider.size()
            manifest.info |= data_info(provider, self.config)
            store.write_skipped(self._skipped(reason))
        manifest.write(store.files.manifest)
        summary = store.finalize()
        store.close()
        if summary.status == "failed":
            self._why_failed = why_failed(summary, self.config.max_error_rate, store.results_path)
        return summary

    def finalize_again(self) -> None:
        """Rows and summary anew, with device figures that were not there before.  Blocks."""
        if self.outcome is not None:
            self.outcome.summary = finalize_run(self.store.directory)

    def _skipped(self, reason: str) -> Iterator[tuple[int, int, EvalRecord, str]]:
        # What is left of a stream would have to be downloaded to be named: it is counted only.
        if not reason or self._prefetched is not None or self._provider is None:
            return
        # Data that can no longer be read ends the list of names, not the summary.
        with contextlib.suppress(DatasetError):
            for position, epoch, record in self._iterate(self._provider, self.store):
                yield position, epoch, record, reason

    def end(self, status: RunStatus, reason: str = "", summary: RunSummary | None = None) -> None:
        """The cell's last word."""
        store = self._store
        self.outcome = RunOutcome(
            self.config.benchmark,
            self.config.model,
            status,
            store.results_path if store and summary else None,
            store.summary_path if store and summary else None,
            summary,
            reason,
        )
        self.progress.message = reason
        self.progress.state = "skipped" if status == "unsupported" else status
        if summary is not None:
            self.progress.outcomes.update(
                {Outcome.SKIPPED: summary.outcomes.get("skipped", 0)}
                if summary.outcomes.get("skipped")
                else {}
            )

    def end_with(self, summary: RunSummary, status: RunStatus | None, reason: str) -> None:
        """End with a summary; its own status unless another is given."""
        own = _STATES.get(summary.status, "partial")
        if own == "failed" and not reason:
            reason = self._why_failed
        self.end(status or own, reason, summary)

    def metrics(self) -> dict[str, float | int | None]:
        """For the tracker; the first is what the others are drawn over."""
        progress = self.progress
        return {
            "samples_done": progress.done,
            "accuracy": progress.accuracy,
            "errors": progress.errors,
            "samples_per_second": progress.samples_per_second,
            "output_tokens_per_second": progress.tokens_per_second,
        }


def _added(total: float | None, cost: float | None) -> float | None:
    """``total`` and a cost, where there was one."""
    return total if cost is None else (total or 0.0) + cost
