"""The columns a benchmark makes of its data's own: renamed ones, computed ones, and which rows count.

``[columns]`` in ``benchmark.toml`` gives a name either the first of several columns that has
something in it, or the value of a Jinja expression, over the data's columns and the names above it;
``data.filter`` says which rows belong to the benchmark at all.  Prompts, fields, ids and digests see the result, so that data with renamed
columns gives the same records.
"""

from __future__ import annotations

from collections.abc import Iterable

from evalray.definition import Benchmark
from evalray.errors import ConfigError, EvalRayError, Problem
from evalray.templates import Expression, Row, RowError, is_missing

#: Holds the values of ``[args]`` for the expressions; no column of the data.
ARGS = "args"


class RowFiltered(EvalRayError):  # noqa: N818
    """A row that does not belong to the benchmark: left out, counted, nothing wrong with it."""


class Columns:
    """The derived columns and the filter of a benchmark, compiled once."""

    __slots__ = ("_args", "_derived", "_filter")

    def __init__(self, benchmark: Benchmark) -> None:
        """Raises :class:`ConfigError` with everything that is wrong in the expressions."""
        origin = str(benchmark.folder / "benchmark.toml")
        self._args = dict(benchmark.args)
        self._derived: dict[str, tuple[str, ...] | Expression] = {}
        self._filter: Expression | None = None
        problems: list[Problem] = []
        for name, source in benchmark.columns.items():
            try:
                self._derived[name] = (
                    Expression(source, origin=origin, key=f"columns.{name}")
                    if isinstance(source, str)
                    else tuple(source)
                )
            except ConfigError as error:
                problems += error.problems
        try:
            if benchmark.filter:
                self._filter = Expression(benchmark.filter, origin=origin, key="data.filter")
        except ConfigError as error:
            problems += error.problems
        if problems:
            raise ConfigError(problems)

    def derive(self, row: Row, *, filtered: bool = True) -> Row:
        """The row with its derived columns.

        Raises :class:`RowFiltered` where the filter leaves it out, :class:`RowError` where a column
        cannot be computed.
        """
        if not self._derived and self._filter is None:
            return row
        out = dict(row)
        if self._args:
            out[ARGS] = self._args
        failed: str | None = None
        for name, made in self._derived.items():
            if isinstance(made, tuple):
                value = next((out[column] for column in made if not is_missing(out.get(column))), None)
            else:
                try:
                    value = made.value(out)
                except RowError as error:
                    failed = failed or self._absent(made, out) or f"column {name!r}: {error}"
                    continue
            if not is_missing(value):
                out[name] = value
        if filtered and self._filter is not None and not self._passes(self._filter, out, failed):
            raise RowFiltered
        if failed is not None:
            raise RowError(failed)
        return out

    def _passes(self, condition: Expression, row: Row, failed: str | None) -> bool:
        try:
            return bool(condition.value(row))
        except RowError as error:
            raise RowError(failed or self._absent(condition, row) or f"filter: {error}") from None

    def _absent(self, expression: Expression, row: Row) -> str | None:
        """What to say where an expression failed for want of a column."""
        absent = sorted(name for name in expression.columns if name not in row and name != ARGS)
        if not absent:
            return None
        return f"column {' or '.join(map(repr, self.names_behind(absent[0])))} is missing"

    def sources(self, names: Iterable[str]) -> set[str]:
        """The data's own columns behind these names and behind the filter."""
        return self.behind({*names, *(self._filter.columns if self._filter is not None else ())})

    def behind(self, names: Iterable[str]) -> set[str]:
        """The data's own columns behind these names."""
        wanted = set(names)
        # backwards: a name stands for what was derived above it, or else for a column of the data
        for name, made in reversed(self._derived.items()):
            if name in wanted:
                wanted.discard(name)
                wanted.update(made if isinstance(made, tuple) else made.columns)
        wanted.discard(ARGS)
        return wanted

    def names_behind(self, name: str) -> tuple[str, ...]:
        """The columns a name may come from, as a person should be told of them."""
        made = self._derived.get(name)
        return made if isinstance(made, tuple) else (name,)
