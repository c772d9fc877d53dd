"""What a provider needs of a set of rows: one pass to look at all of them, then access by key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

ScannedRow = tuple[int, int, dict[str, Any] | str]
"""``(key, line, row)``; a string in place of the row is the reason why it cannot be read."""


class RowSource(Protocol):
    """Rows that are too many to hold: a key of 64 bits finds one again."""

    batch: int
    """How many rows are best read at once."""

    @property
    def column_names(self) -> Sequence[str]:
        """The data's own columns, as far as they are known: before a scan they may be none."""
        ...

    def scan(self, columns: Sequence[str]) -> Iterator[ScannedRow]:
        """Every row in file order, one pass.  Only ``columns`` need to be there."""
        ...

    def where(self, key: int, line: int) -> str:
        """The place of a row for people: ``file:line`` or ``name[index]``."""
        ...

    def read(self, keys: Sequence[int]) -> list[dict[str, Any]]:
        """The rows of these keys.  Raises :class:`DatasetError` when the data changed under us."""
        ...
