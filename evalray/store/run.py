"""One run being written: what is done, and the journals that say so.

A sample counts as done once its line is journaled; the driver is the only writer.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from evalray.errors import StoreError
from evalray.store.activity import Activity, ActivityLog
from evalray.store.finalize import finalize_run
from evalray.store.index import RunIndex
from evalray.store.journal import VERSION, Damage, Journal, LineReader, seal
from evalray.store.jsonlines import store_errors, sync_directory, written_beside
from evalray.store.layout import RunFiles, RunManifest
from evalray.store.lines import (
    answer_checksum,
    generation_line,
    read_generation,
    read_record,
    record_fields,
    score_line,
)
from evalray.types import EvalRecord, Generation, RunSummary, Score


class RunStore:
    """Journals of one run and what they say is done.  Opened by :meth:`SweepStore.open_run`.

    ``position`` is a record's index in the run's seeded order, ``epoch`` counts from 0; a sample
    outside the plan raises :class:`IndexError`.  Whatever writes may raise :class:`StoreError`.
    """

    def __init__(
        self, directory: Path, manifest: RunManifest, on_close: Callable[[], None] = lambda: None
    ) -> None:
        self.files = RunFiles(directory)
        self.manifest = manifest
        self.name = self.files.name
        self.directory = directory
        self.results_path = self.files.results
        self.parquet_path = self.files.parquet
        self.summary_path = self.files.summary
        self._on_close = on_close
        with contextlib.ExitStack() as opened:
            with store_errors(directory):
                directory.mkdir(parents=True, exist_ok=True)
            manifest.write(self.files.manifest)
            self._generations = Journal(self.files.generations)
            opened.callback(self._generations.close)
            self._scores = Journal(self.files.scores)
            opened.callback(self._scores.close)
            self._activity = ActivityLog(self.files.activity)
            opened.callback(self._activity.close)
            sync_directory(directory)
            self._index = RunIndex.read(
                self.files.generations,
                self.files.scores,
                num_records=manifest.num_records,
                epochs=manifest.epochs,
                scorer=manifest.scorer_fingerprint,
            )
            opened.pop_all()
        self._resumed = self._index.outcomes()
        self._closed = False

    @property
    def damage(self) -> list[Damage]:
        """Journal lines that could not be read when the run was opened."""
        return self._index.damage

    def generation_done(self, position: int, epoch: int) -> bool:
        """Whether a generation without error is journaled."""
        return self._index.generation_done(position, epoch)

    def score_done(self, position: int, epoch: int) -> bool:
        """Whether a final score under the current scorer is journaled."""
        return self._index.score_done(position, epoch)

    def resumed_outcomes(self) -> Counter[str]:
        """How many samples had each final outcome when the run was opened."""
        return Counter(self._resumed)

    def append_generation(
        self, position: int, epoch: int, attempt: int, record: EvalRecord, generation: Generation
    ) -> bool:
        """Journal a generation, failed or not; ``False`` where a good one is there already.

        A late duplicate changes nothing, and must not be scored.
        """
        if self._index.generation_done(position, epoch):
            return False
        answer = answer_checksum(generation)
        line = generation_line(position, epoch, attempt, time.time(), answer, record, generation)
        offset = self._generations.append(line)
        return self._index.add_generation(position, epoch, generation.error is None, answer, offset)

    def append_score(
        self, position: int, epoch: int, record_id: str, score: Score, judge: dict[str, Any] | None = None
    ) -> bool:
        """Journal the verdict on the journaled generation; ``False`` where a final one is there already.

        ``judge`` says what asking a judge took: tokens, cost, latency.  Raises :class:`ValueError`
        for a sample without a generation.
        """
        answer = self._index.answer(position, epoch)
        if answer is None:
            raise ValueError(f"{self.name}: score for {record_id}, which has no generation")
        if self._index.score_done(position, epoch):
            return False
        scorer = self.manifest.scorer_fingerprint
        line = score_line(position, epoch, time.time(), answer, record_id, scorer, score, judge)
        return self._index.add_score(position, epoch, score.outcome, answer, self._scores.append(line))

    def flush(self) -> None:
        """Hand all lines to the operating system; the disk follows at most once a second."""
        self._generations.flush()
        self._scores.flush()

    def rescue(self) -> None:
        """See :meth:`Journal.rescue`."""
        self._generations.rescue()
        self._scores.rescue()

    def unscored(self) -> Iterator[tuple[int, int, EvalRecord, Generation]]:
        """Finished generations without a final score under the current scorer, in order of position.

        Streams from the journal; generations appended after the call are not among them.
        """
        self.flush()
        return self._stream_unscored(self._generations.end)

    def _stream_unscored(self, end: int) -> Iterator[tuple[int, int, EvalRecord, Generation]]:
        reader = LineReader(self.files.generations)
        try:
            for position, epoch, offset in self._index.unscored():
                if offset < end:
                    line = reader.read(offset)
                    yield position, epoch, read_record(line), read_generation(line)
        finally:
            reader.close()

    def begin_stretch(self) -> None:
        """Start the clock of active time; nothing where it runs."""
        self._activity.begin()

    def end_stretch(self) -> None:
        """Stop the clock of active time; nothing where it stands."""
        self._activity.end()

    def record_stretch(self, started_at: float, ended_at: float) -> None:
        """Note when a run was done elsewhere, in Unix seconds; nothing where a stretch is noted already."""
        if Activity.read(self.files.activity).started_at is None:
            self._activity.record(started_at, ended_at)

    def write_skipped(self, items: Iterable[tuple[int, int, EvalRecord, str]]) -> None:
        """Replace the list of samples that were not attempted: position, epoch, record, reason."""
        path, count = self.files.skipped, 0
        with written_beside(path) as file:
            for position, epoch, record, reason in items:
                line = {
                    "v": VERSION,
                    "position": position,
                    "epoch": epoch,
                    "record_id": record.record_id,
                    "reason": reason,
                    "record": record_fields(record),
                }
                file.write(seal(line))
                count += 1
        if not count:
            with store_errors(path):
                path.unlink()

    def finalize(self) -> RunSummary:
        """Write the run's rows and summary from what is journaled."""
        self.flush()
        return finalize_run(self.directory)

    def close(self) -> None:
        """Flush to the disk and close.  Safe to call twice; an open stretch ends here."""
        if self._closed:
            return
        self._closed = True
        errors: list[StoreError] = []
        for step in (self._activity.end, self._activity.close, self._generations.close, self._scores.close):
            try:
                step()
            except StoreError as error:
                errors.append(error)
        self._on_close()
        if errors:
            raise errors[0]
