"""Rows that become no record: which, why, how many, and how that is said.

A row that is *bad* has something wrong with it; one that is *filtered* is not what the benchmark is about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from evalray.datasets.base import BadRow
from evalray.wording import counted

#: How many bad rows are kept with their reasons; the rest is counted.
MAX_BAD_ROWS = 20
#: Columns of the data that are named where none of its rows can be used.
_NAMED_COLUMNS = 12


@dataclass(slots=True)
class BadRows:
    """The first bad rows by place and reason, and the counts of all of them and of those left out."""

    first: list[BadRow] = field(default_factory=list)
    count: int = 0
    filtered: int = 0

    def add(self, where: str, reason: str) -> None:
        self.count += 1
        if len(self.first) < MAX_BAD_ROWS:
            self.first.append(BadRow(where, reason))


class TellsBadRows:
    """The part of a provider that checks its rows: what it says of those that became no record."""

    _bad: BadRows

    @property
    def bad_rows(self) -> list[BadRow]:
        return list(self._bad.first)

    @property
    def bad_row_count(self) -> int:
        return self._bad.count

    @property
    def filtered_row_count(self) -> int:
        return self._bad.filtered


def left_out(count: int) -> str:
    """The warning about rows that a filter leaves out."""
    return f"{counted(count, 'row is', 'rows are')} left out by the benchmark's filter"


def told_apart(count: int) -> str:
    """The warning about rows whose record id an earlier row has."""
    repeat = counted(
        count, "row repeats an earlier record id and is", "rows repeat an earlier record id and are"
    )
    return f"{repeat} told apart by #2, #3, ..."


def no_good_rows(name: str, bad: BadRows, column_names: Sequence[str]) -> str:
    """Why a data set without a single record cannot be run, in one line."""
    if not bad.count:
        if bad.filtered:
            every = "its only row is" if bad.filtered == 1 else f"all {bad.filtered:,} rows are"
            return f"{name}: {every} left out by the benchmark's filter; choose other data or another split"
        return f"{name}: the data has no rows"
    first = bad.first[0]
    none = "its only row cannot" if bad.count == 1 else f"none of the {bad.count:,} rows can"
    message = f"{name}: {none} be used; first: {first.where}: {first.reason}"
    if column_names and "missing" in first.reason:
        more = ", ..." if len(column_names) > _NAMED_COLUMNS else ""
        message += f" (the data has: {', '.join(column_names[:_NAMED_COLUMNS])}{more})"
    return message
