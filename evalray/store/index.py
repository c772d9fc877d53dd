"""Which journal line stands for each sample of a run: the one place that decides what is done.

A sample is a slot, ``position * epochs + epoch``.  Of several generation lines the first without
an error stands; among errors the last.  Of several score lines, those count that judged the standing
answer under the current scorer; the first final one stands, else the last.  Lines beyond the
planned positions or epochs are left alone: raising the plan finds them again.

Costs about 22 bytes a sample.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from evalray.store.journal import Damage, read_lines
from evalray.store.lines import GenerationHead, ScoreHead, read_generation_head, read_score_head
from evalray.types import Outcome

_Head = TypeVar("_Head", GenerationHead, ScoreHead)
_ABSENT, _FAILED, _DONE = 0, 1, 2
_OUTCOMES = tuple(Outcome)
_CODE = {outcome: code for code, outcome in enumerate(_OUTCOMES, 1)}
_IS_FINAL = (False, *(outcome.is_scored for outcome in _OUTCOMES))


class RunIndex:
    """Offsets and states of the standing lines of a run's journals."""

    def __init__(self, num_records: int, epochs: int, scorer: str) -> None:
        self.num_records = num_records
        self.epochs = epochs
        self.scorer = scorer
        slots = num_records * epochs
        self._generated = bytearray(slots)
        self._answers = array("I", bytes(4 * slots))
        self._generation_offsets = array("q", bytes(8 * slots))
        self._scored = bytearray(slots)
        self._score_offsets = array("q", bytes(8 * slots))
        self.damage: list[Damage] = []

    @classmethod
    def read(
        cls,
        generations: Path,
        scores: Path,
        *,
        num_records: int,
        epochs: int,
        scorer: str,
        on_time: Callable[[float, bool], None] | None = None,
    ) -> RunIndex:
        """Index both journals in one streaming pass each; ``on_time`` sees when each line was written, and
        whether its sample is in the plan.

        Raises :class:`StoreError` for an unreadable file or one of a later version.
        """
        index = cls(num_records, epochs, scorer)
        for offset, head in index._heads(generations, read_generation_head, on_time):
            index.add_generation(head.position, head.epoch, head.ok, head.answer, offset)
        for offset, score in index._heads(scores, read_score_head, on_time):
            if score.scorer == scorer:
                index.add_score(score.position, score.epoch, score.outcome, score.answer, offset)
        return index

    def _heads(
        self,
        path: Path,
        head_of: Callable[[bytes, Path], _Head | None],
        on_time: Callable[[float, bool], None] | None,
    ) -> Iterator[tuple[int, _Head]]:
        """Of the planned samples; of the others only the time is told."""
        damage = Damage(path)
        for offset, line in read_lines(path, damage):
            head = head_of(line, path)
            if head is None:
                continue
            planned = self.covers(head.position, head.epoch)
            if on_time is not None:
                on_time(head.at, planned)
            if planned:
                yield offset, head
        if damage.count:
            self.damage.append(damage)

    def covers(self, position: int, epoch: int) -> bool:
        """Whether the sample is in the current plan."""
        return 0 <= position < self.num_records and 0 <= epoch < self.epochs

    def _slot(self, position: int, epoch: int) -> int:
        if not self.covers(position, epoch):
            raise IndexError(f"position {position}, epoch {epoch} of {self.num_records} x {self.epochs}")
        return position * self.epochs + epoch

    def add_generation(self, position: int, epoch: int, ok: bool, answer: int, offset: int) -> bool:
        """Take in a generation line; ``False`` where an earlier one stands."""
        slot = self._slot(position, epoch)
        if self._generated[slot] == _DONE:
            return False
        self._generated[slot] = _DONE if ok else _FAILED
        self._answers[slot] = answer
        self._generation_offsets[slot] = offset
        self._scored[slot] = _ABSENT
        return True

    def add_score(self, position: int, epoch: int, outcome: Outcome, answer: int, offset: int) -> bool:
        """Take in a score line; ``False`` where it judged another answer or a final one stands."""
        slot = self._slot(position, epoch)
        if self._generated[slot] == _ABSENT or self._answers[slot] != answer:
            return False
        if _IS_FINAL[self._scored[slot]]:
            return False
        self._scored[slot] = _CODE[outcome]
        self._score_offsets[slot] = offset
        return True

    def generation_done(self, position: int, epoch: int) -> bool:
        """A generation without error is journaled."""
        return self._generated[self._slot(position, epoch)] == _DONE

    def score_done(self, position: int, epoch: int) -> bool:
        """A final score of that generation is journaled."""
        slot = self._slot(position, epoch)
        return self._generated[slot] == _DONE and _IS_FINAL[self._scored[slot]]

    def answer(self, position: int, epoch: int) -> int | None:
        """Checksum of the standing answer."""
        slot = self._slot(position, epoch)
        return self._answers[slot] if self._generated[slot] else None

    def generation_offset(self, position: int, epoch: int) -> int | None:
        slot = self._slot(position, epoch)
        return self._generation_offsets[slot] if self._generated[slot] else None

    def score_offset(self, position: int, epoch: int) -> int | None:
        slot = self._slot(position, epoch)
        return self._score_offsets[slot] if self._scored[slot] else None

    def outcomes(self) -> Counter[str]:
        """How many samples have each final outcome."""
        counts = Counter(self._scored)
        return Counter(
            {str(o): counts[code] for o, code in _CODE.items() if _IS_FINAL[code] and counts[code]}
        )

    def unscored(self) -> Iterator[tuple[int, int, int]]:
        """``(position, epoch, generation offset)`` of finished generations without a final score."""
        for slot, state in enumerate(self._generated):
            if state == _DONE and not _IS_FINAL[self._scored[slot]]:
                yield slot // self.epochs, slot % self.epochs, self._generation_offsets[slot]
