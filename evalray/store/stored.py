"""Runs whose generations are there already and whose verdicts are given anew.

The old verdicts are moved aside, never deleted, and what a judge said in them can be read again.
"""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

from evalray.store.index import RunIndex
from evalray.store.journal import LineReader, read_lines
from evalray.store.jsonlines import move_aside
from evalray.store.layout import RunFiles
from evalray.store.lines import read_score_head
from evalray.store.run import RunStore
from evalray.store.sweep import RunEntry, SweepStore
from evalray.types import RunConfig

#: Lines that hold no reply of a judge, though one was wanted: an earlier one may.
_WITHOUT_REPLY = (b'"reason":"judge_failed"', b'"reason":"no judge configured"')


class StoredRun:
    """A run to be scored again.  ``reread``: what a judge replied before is read again where it fits.

    ``judge_is_named``: replies of which nobody knows whose they are do not fit.
    """

    def __init__(self, entry: RunEntry, *, reread: bool, judge_is_named: bool = False) -> None:
        self.entry = entry
        self._judge_is_named = judge_is_named
        self._reread = reread
        self._verdicts: _Verdicts | None = None

    def reopen(
        self, sweep: SweepStore, config: RunConfig, scorer_fingerprint: str, info: dict[str, Any]
    ) -> RunStore:
        """Open the run with no verdict given.  Raises :class:`StoreError`."""
        manifest, files = self.entry.manifest, RunFiles(self.entry.directory)
        if files.scores.exists() and files.scores.stat().st_size:
            move_aside(files.scores, suffix=".jsonl")
        if self._reread:
            self._verdicts = _Verdicts(files, manifest.num_records, manifest.epochs)
        return sweep.open_run(
            config,
            fingerprint=manifest.fingerprint,
            scorer_fingerprint=scorer_fingerprint,
            num_records=manifest.num_records,
            info={**manifest.info, **info},
        )

    def close(self) -> None:
        """Let go of the earlier verdicts."""
        verdicts, self._verdicts = self._verdicts, None
        if verdicts is not None:
            verdicts.close()

    def verdict(self, position: int, epoch: int, judge: str | None) -> dict[str, Any] | None:
        """The line of the last verdict on the standing answer in which a reply of ``judge`` may be.

        ``None`` for ``judge`` takes anyone's.
        """
        line = self._verdicts.line(position, epoch) if self._verdicts is not None else None
        if line is None or judge is None:
            return line
        who = (line.get("judge") or {}).get("model")
        fits = not self._judge_is_named if who is None else who == judge
        return line if fits else None


class _Verdicts:
    """Where the last useful verdict of each sample stands; about 9 bytes a sample."""

    def __init__(self, files: RunFiles, num_records: int, epochs: int) -> None:
        self._epochs = epochs
        index = RunIndex.read(
            files.generations,
            files.directory / "none",
            num_records=num_records,
            epochs=epochs,
            scorer="",
        )
        paths = sorted(files.directory.glob("scores.*.jsonl"), key=_age)[-255:]
        self._readers = [LineReader(path) for path in paths]
        self._file = bytearray(num_records * epochs)
        self._offset = array("q", bytes(8 * num_records * epochs))
        for number, path in enumerate(paths, 1):
            for offset, line in read_lines(path):
                head = read_score_head(line, path)
                if head is None or not index.covers(head.position, head.epoch):
                    continue
                if head.answer != index.answer(head.position, head.epoch):
                    continue
                slot = head.position * epochs + head.epoch
                if self._file[slot] and any(mark in line for mark in _WITHOUT_REPLY):
                    continue
                self._file[slot], self._offset[slot] = number, offset

    def line(self, position: int, epoch: int) -> dict[str, Any] | None:
        slot = position * self._epochs + epoch
        number = self._file[slot]
        return self._readers[number - 1].read(self._offset[slot]) if number else None

    def close(self) -> None:
        for reader in self._readers:
            reader.close()


def _age(path: Path) -> tuple[str, int]:
    """By the time in the name, then by the number behind it."""
    stamp, _, number = path.name.removeprefix("scores.").removesuffix(".jsonl").partition("-")
    return stamp, int(number) if number.isdigit() else 0
