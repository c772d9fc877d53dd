"""A deployment's answers on their way to verdicts: fresh ones, and what journals hold without one.

A fresh answer is scored at once where that is possible.  What found its judge's queue full, or was left
without a verdict by an earlier process, is read back from the journal when there is room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Protocol

from evalray.errors import StoreError
from evalray.runtime.budget import Budget
from evalray.runtime.cell import Cell
from evalray.runtime.scoring import ScoringDesk, ScoringTask, StoredVerdict, answer_of
from evalray.types import EvalRecord, Generation, Score

_FLUSH_EVERY = 64
_LOOK_SECONDS = 0.05


class Owner(Protocol):
    """The deployment that the answers are of."""

    stopped: str
    """Why nothing more is begun."""
    failed: BaseException | None
    """Why nothing can be written any more."""

    def check(self, cell: Cell) -> None:
        """A cell may be worked off by now."""
        ...

    def fail(self, error: BaseException) -> None:
        """A journal cannot be written."""
        ...


class Verdicts:
    """See the module.  Used in the driver's event loop: :meth:`begin`, then :meth:`settle`, then :meth:`close`."""

    def __init__(self, owner: Owner, desk: ScoringDesk, budget: Budget, patience_seconds: float) -> None:
        self._owner = owner
        self._desk = desk
        self._budget = budget
        self._patience = patience_seconds
        self._cells: list[Cell] = []
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, cells: Iterable[Cell]) -> None:
        """Go through the journals of ``cells``, until :meth:`close`."""
        self._cells = list(cells)
        for cell in self._cells:
            cell.rescoring = True  # before anything may take the cell for worked off
        self._tasks = [asyncio.create_task(self._rescore(cell)) for cell in self._cells]

    async def score(
        self,
        cell: Cell,
        position: int,
        epoch: int,
        record: EvalRecord,
        generation: Generation,
        *,
        stored: StoredVerdict | None = None,
        wait: bool = False,
    ) -> None:
        """Score an answer that no one has taken yet, or leave it in the journal where its judge is full.

        With ``wait`` its judge's queue is waited for instead; ``stored`` is an earlier verdict on it.
        """
        if not cell.take_to_score(position, epoch):
            return

        def done(score: Score, judge: dict[str, Any] | None) -> None:
            self._scored(cell, position, epoch, record, score, judge)

        def dropped() -> None:
            cell.drop_score()
            self._owner.check(cell)

        task = ScoringTask(cell.scorer, record, answer_of(generation), cell.judging, done, dropped, stored)
        if not await self._desk.score(task, wait=wait):
            cell.spill(position, epoch)

    async def settle(self) -> None:
        """Wait for verdicts under way.  After a stop, what spilled or takes too long is scored on resume.

        Raises what reading or writing a journal raised.
        """
        loop = asyncio.get_running_loop()
        deadline = None
        while any(self._awaits(cell) for cell in self._cells):
            self._raise_failures()
            if deadline is None and self._owner.stopped:
                deadline = loop.time() + self._patience
            if deadline is not None and loop.time() > deadline:
                return
            await asyncio.sleep(_LOOK_SECONDS)
        self._raise_failures()

    def end_rescoring(self) -> None:
        """Read no more from the journals."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """Drop what still waits; it is scored when the run is continued."""
        await self._desk.close()

    def _awaits(self, cell: Cell) -> bool:
        spilled = cell.spilled and not self._owner.stopped
        return cell.outcome is None and bool(cell.scoring or cell.rescoring or spilled)

    def _raise_failures(self) -> None:
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error
        if self._owner.failed is not None:
            raise self._owner.failed

    def _scored(
        self,
        cell: Cell,
        position: int,
        epoch: int,
        record: EvalRecord,
        score: Score,
        judge: dict[str, Any] | None,
    ) -> None:
        try:
            self._budget.count_judge(judge)
            cell.add_score(position, epoch, record, score, judge)
            if judge is not None or cell.scorer.scorer.isolated:
                cell.store.flush()
        except StoreError as error:
            self._owner.fail(error)
            return
        self._owner.check(cell)

    async def _rescore(self, cell: Cell) -> None:
        """Score what the journal holds without a verdict: of before, and what found its judge's queue full."""
        try:
            while not self._owner.stopped:
                cell.has_spilled.clear()
                await self._go_through_journal(cell)
                cell.rescoring = False
                self._owner.check(cell)
                await cell.has_spilled.wait()
                cell.rescoring = True
        finally:
            cell.rescoring = False
            self._owner.check(cell)

    async def _go_through_journal(self, cell: Cell) -> None:
        for number, (position, epoch, record, generation) in enumerate(cell.store.unscored(), 1):
            if self._owner.stopped:
                return
            if cell.planned.stored is None:
                cell.store.begin_stretch()
            stored = cell.stored_verdict(position, epoch)
            await self.score(cell, position, epoch, record, generation, stored=stored, wait=True)
            if number % _FLUSH_EVERY == 0:
                cell.store.flush()
                await asyncio.sleep(0)
