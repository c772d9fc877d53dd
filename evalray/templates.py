"""The Jinja of a benchmark folder: one sandbox, templates and expressions compiled once.

Everything is strict: a name that the row does not have is an error, never an empty string.  ``row``
is the whole row, for columns whose names are no identifiers: ``row["Final answer"]``.  Beside
Jinja's own filters there are ``after_last(marker)``, ``letter``, ``letter_in(choices)``,
``parsed(default)``, ``as_list`` and ``articles(folder)``.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import isnan
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError, Undefined, UndefinedError, meta, nodes
from jinja2.environment import TemplateExpression
from jinja2.sandbox import ImmutableSandboxedEnvironment

from evalray.articles import articles
from evalray.errors import ConfigError, EvalRayError, Problem

_REQUIRED: Any = object()
_LONGEST_LITERAL = 1_000_000
#: The name under which a template sees the whole row.
_ROW = "row"

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

Row = Mapping[str, Any]


class RowError(EvalRayError):
    """One row cannot become a record; the message is the reason, without the place."""


def is_missing(value: object) -> bool:
    """Absent, null, NaN or blank: tables and CSV files write "nothing" in all these ways."""
    return not value.strip() if isinstance(value, str) else is_null(value)


def is_null(value: object) -> bool:
    """Absent, null or NaN; blank text is something."""
    return value is None or (isinstance(value, float) and isnan(value))


def as_text(value: object) -> str:
    """A cell as text: strings as they are, everything else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


# -- filters ------------------------------------------------------------------------------------


def after_last(text: object, marker: str) -> str:
    """What follows the last ``marker``, trimmed; the whole text where the marker does not occur.

    Of a cell with nothing in it, nothing.
    """
    return "" if is_null(text) else as_text(text).rpartition(marker)[2].strip()


def letter(value: object) -> str:
    """Zero-based index to its letter (0 is A); a single letter stays that letter, in upper case."""
    text = as_text(value).strip()
    if text.isdecimal() and int(text) < len(LETTERS):
        return LETTERS[int(text)]
    if len(text) == 1 and text.upper() in LETTERS:
        return text.upper()
    raise ValueError(f"{text[:40]!r} is neither an index from 0 to 25 nor a letter")


def letter_in(text: object, choices: object) -> str:
    """The letter of the option whose text this is."""
    wanted = as_text(text).strip()
    found = [option["letter"] for option in lettered_options(choices) if option["text"].strip() == wanted]
    if len(found) != 1:
        raise ValueError(f"{wanted[:40]!r} is the text of {len(found)} options, not of one")
    return found[0]


def parsed(value: object, default: object = _REQUIRED) -> object:
    """The value written as JSON or as a Python literal in a text cell; other cells as they are.

    Nothing is executed.  ``default`` stands in for an empty cell and for text that is neither.
    """
    if not isinstance(value, str):
        return default if is_missing(value) and default is not _REQUIRED else value
    text = value.strip()
    if len(text) <= _LONGEST_LITERAL:
        for read in (json.loads, ast.literal_eval):
            try:
                return read(text)
            except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
                continue
    if default is _REQUIRED:
        raise ValueError(f"{text[:40]!r} is neither JSON nor a Python literal")
    return default


def as_list(value: object) -> list[Any]:
    """A cell of several values: a list, one written out as text, or text split at lines or commas."""
    if is_missing(value):
        return []
    if isinstance(value, str):
        found = parsed(value, None) if value.strip()[:1] in "[(" else None
        if not isinstance(found, list | tuple):
            # a comma may be part of an address: one that separates has the next address behind it
            cut = re.split(r"[\r\n]+|,(?=\s*\w+://)" if "://" in value else r"[\r\n]+|,", value)
            found = [part.strip() for part in cut]
    else:
        found = value if isinstance(value, list | tuple) else [value]
    return [item for item in found if not is_missing(item)]


def lettered_options(choices: object) -> list[dict[str, str]]:
    """``[{"letter": "A", "text": ...}, ...]`` of a column of options.

    Takes a list, a list written as a JSON string (CSV), or the hub's ``{"text": [...]}``.
    Raises :class:`RowError`.
    """
    if isinstance(choices, str):
        try:
            choices = json.loads(choices)
        except (ValueError, RecursionError):
            raise RowError("the options are text that is not a JSON list") from None
    if isinstance(choices, Mapping):
        choices = choices.get("text")
    if not isinstance(choices, Sequence) or isinstance(choices, str):
        raise RowError("the options are not a list")
    if not 2 <= len(choices) <= len(LETTERS):
        raise RowError(f"{len(choices)} options; 2 to {len(LETTERS)} can be lettered")
    if any(is_missing(choice) for choice in choices):
        raise RowError("an option is empty")
    return [{"letter": LETTERS[i], "text": as_text(choice)} for i, choice in enumerate(choices)]


# -- templates ----------------------------------------------------------------------------------


#: Filters that make something of a cell with nothing in it.
_SUPPLIES = frozenset({"default", "d", "as_list", "parsed", "articles", "length", "count", "tojson"})
_UNDEFINED = re.compile(r"'(?P<name>.+)' is undefined|'dict object' has no attribute '(?P<key>.+)'")


def _not_null(value: Any) -> Any:
    """What a template prints: never the word ``None``."""
    if value is None:
        raise RowError("an expression comes to null; give it a default")
    return value


@lru_cache(maxsize=1)
def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_not_null,
    )
    environment.filters.update(
        after_last=after_last,
        letter=letter,
        letter_in=letter_in,
        parsed=parsed,
        as_list=as_list,
        articles=articles,
    )
    return environment


def _parse(source: str, *, origin: str, key: str) -> nodes.Template:
    try:
        return _environment().parse(source)
    except TemplateError as error:
        raise _syntax_problem(error, origin, key) from None


def _syntax_problem(error: TemplateError, origin: str, key: str) -> ConfigError:
    line = getattr(error, "lineno", None)
    where = f"line {line}: " if line else ""
    return ConfigError([Problem(origin, key, f"{where}{error}", "see the Jinja syntax")])


def _column_of(node: nodes.Node) -> str | None:
    """The column that ``name``, ``row["name"]`` or ``row.name`` reads, and nothing more than reads."""
    match node:
        case nodes.Name(name=str(name)) if name != _ROW:
            return name
        case nodes.Getitem(node=nodes.Name(name="row"), arg=nodes.Const(value=str(name))):
            return name
        case nodes.Getattr(node=nodes.Name(name="row"), attr=str(name)) if not hasattr(dict, name):
            return name
    return None


def _needed(node: nodes.Node) -> set[str]:
    """The columns without which what a ``{{ }}`` prints would be the word for nothing."""
    match node:
        case nodes.Filter(node=nodes.Node() as inner, name=name) if name not in _SUPPLIES:
            return _needed(inner)
        case nodes.Concat(nodes=parts):
            return set().union(*map(_needed, parts))
    column = _column_of(node)
    return set() if column is None else {column}


def _columns_read(tree: nodes.Template, *, origin: str, key: str) -> frozenset[str]:
    """Every column a template reads.  Raises :class:`ConfigError` where that cannot be known."""
    found = set(meta.find_undeclared_variables(tree) - _environment().globals.keys())
    if _ROW in found:
        found.discard(_ROW)
        named = [
            column
            for node in tree.find_all((nodes.Getitem, nodes.Getattr))
            if isinstance(node, nodes.Getitem | nodes.Getattr)
            and isinstance(node.node, nodes.Name)
            and node.node.name == _ROW
            and (column := _column_of(node)) is not None
        ]
        if len(named) != sum(name.name == _ROW for name in tree.find_all(nodes.Name)):
            message = "row must be read by the name of a column"
            raise ConfigError([Problem(origin, key, message, 'write row["name"], the name in quotes')])
        found.update(named)
    return frozenset(found)


class TextTemplate:
    """A Jinja source, compiled once.

    ``columns`` are the names it reads; ``printed`` those it prints outside every condition and
    without a filter, which therefore must not be empty; ``needed`` has beside them those that pass
    through a filter first, which may be blank but must be there; ``plain`` is true where it does
    nothing else than print, so that a row with all of them cannot fail.
    """

    __slots__ = ("_parts", "_template", "columns", "needed", "plain", "printed")

    def __init__(self, source: str, *, origin: str, key: str = "") -> None:
        tree = _parse(source, origin=origin, key=key)
        self._template = _compiled(source, origin=origin, key=key)
        self.columns = _columns_read(tree, origin=origin, key=key)
        outputs = [node for node in tree.body if isinstance(node, nodes.Output)]
        pieces = [piece for output in outputs for piece in output.nodes]
        read = [_column_of(piece) for piece in pieces]
        self.printed = frozenset(column for column in read if column is not None and column in self.columns)
        self.needed = self.columns & set().union(*map(_needed, pieces))
        self.plain = len(outputs) == len(tree.body) and all(
            isinstance(piece, nodes.TemplateData) or column in self.printed
            for piece, column in zip(pieces, read, strict=True)
        )
        # (literal, column) pairs: joining them is a tenth of the cost of a Jinja render
        self._parts: list[tuple[str, str]] = [
            (piece.data, "") if isinstance(piece, nodes.TemplateData) else ("", column or "")
            for piece, column in zip(pieces, read, strict=True)
            if self.plain
        ]

    @classmethod
    def of_column(cls, column: str) -> TextTemplate:
        """Prints one column, whatever its name."""
        template = cls("", origin="")
        template.columns = template.printed = template.needed = frozenset({column})
        template._parts = [("", column)]
        return template

    def render(self, row: Row) -> str:
        """Raises :class:`RowError` with the reason."""
        try:
            if self.plain:
                return "".join([str(row[column]) if column else literal for literal, column in self._parts])
            return self._template.render(row, row=row)
        except KeyError as error:
            raise RowError(f"column {error} is missing") from None
        except UndefinedError as error:
            raise RowError(self._what_is_missing(error)) from None
        except RowError:
            raise
        except Exception as error:  # noqa: BLE001
            # a template may fail in as many ways as the data has shapes; each is one bad row
            raise RowError(f"{type(error).__name__}: {error}") from None

    def _what_is_missing(self, error: UndefinedError) -> str:
        found = _UNDEFINED.fullmatch(str(error))
        name = found and (found["name"] or found["key"])
        return f"column {name!r} is missing" if name in self.columns else str(error)

    def absent(self, row: Row) -> str | None:
        """The first column that the row would have to have, or is null there; ``None`` where nothing lacks."""
        if self.needed:
            for column in sorted(self.needed):
                value = row.get(column)
                if is_null(value) or (column in self.printed and is_missing(value)):
                    return column
        return None


def _compiled(source: str, *, origin: str, key: str) -> Template:
    try:
        return _environment().from_string(source)
    except TemplateError as error:
        raise _syntax_problem(error, origin, key) from None


class Expression:
    """A Jinja expression without braces, compiled once: a row's value as what it is, not as text."""

    __slots__ = ("_evaluate", "columns")

    def __init__(self, source: str, *, origin: str, key: str) -> None:
        try:
            self._evaluate: TemplateExpression = _environment().compile_expression(
                source, undefined_to_none=False
            )
        except TemplateError as error:
            raise _syntax_problem(error, origin, key) from None
        tree = _parse("{{ (" + source + ") }}", origin=origin, key=key)
        self.columns = _columns_read(tree, origin=origin, key=key)

    def value(self, row: Row) -> Any:
        """``None`` where it names what is not there.  Raises :class:`RowError` where it fails."""
        try:
            found = self._evaluate(row, row=row)
        except RowError:
            raise
        except Exception as error:  # noqa: BLE001
            # an expression may fail in as many ways as the data has shapes; each is one bad row
            raise RowError(f"{type(error).__name__}: {error}") from None
        return None if isinstance(found, Undefined) else found
