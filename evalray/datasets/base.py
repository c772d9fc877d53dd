"""Where records come from: the provider's contract."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from evalray.types import EvalRecord


@dataclass(slots=True, frozen=True)
class BadRow:
    """A row that could not become a record: where it stands (``file:line`` or row index) and why."""

    where: str
    reason: str


class DatasetProvider(ABC):
    """An ordered, possibly large set of records.

    ``load`` fixes the order: a seeded permutation of the good rows, cut to ``max_samples`` after
    the bad rows are dropped, so that a larger ``max_samples`` continues a smaller one.  A record's
    *position* is its index in that order.
    """

    dataset_id: str
    dataset_name: str

    @abstractmethod
    def load(
        self,
        *,
        max_samples: int | None = None,
        split: str | None = None,
        seed: int | None = None,
    ) -> None:
        """Open the data.  ``seed=None`` keeps the original order.  Raises :class:`DatasetError`."""

    @abstractmethod
    def iter_records(self) -> Iterable[EvalRecord]:
        """The records in order.  Raises if called before :meth:`load`."""

    @abstractmethod
    def size(self) -> int:
        """How many records :meth:`iter_records` yields."""

    def iter_pending(self, is_done: Callable[[int], bool]) -> Iterator[tuple[int, EvalRecord]]:
        """``(position, record)`` of the positions that are not done; done ones cost nothing where
        the provider can seek."""
        for position, record in enumerate(self.iter_records()):
            if not is_done(position):
                yield position, record

    def digest(self) -> str:
        """Hash of the whole data (not of the selection): part of a run's fingerprint."""
        return ""

    @property
    def bad_rows(self) -> list[BadRow]:
        """The first rows that were dropped; :attr:`bad_row_count` has them all counted."""
        return []

    @property
    def bad_row_count(self) -> int:
        return len(self.bad_rows)

    @property
    def filtered_row_count(self) -> int:
        """Rows left out because the benchmark is not about them; nothing is wrong with these."""
        return 0

    @property
    def warnings(self) -> list[str]:
        """Things a user should know about this data, e.g. duplicate ids or an approximate shuffle."""
        return []
