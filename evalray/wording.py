"""Numbers with their nouns, in what people read."""

from __future__ import annotations

from collections.abc import Sequence

#: Bad rows that are named; the rest is counted.
_NAMED_ROWS = 3


def counted(number: int, noun: str, plural: str = "") -> str:
    """``1 row``, ``1,200 rows``; ``plural`` where it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def bad_rows_left_out(count: int, rows: Sequence[str]) -> list[str]:
    """The one warning about rows that cannot be used, the first of ``rows`` in it; none where there are none."""
    if not count:
        return []
    more = "; ..." if count > _NAMED_ROWS else ""
    named = "; ".join(rows[:_NAMED_ROWS])
    return [f"{counted(count, 'bad row was', 'bad rows were')} left out: {named}{more}"]
