"""From a row of data to the text a model sees: templates, field expressions, few-shot turns.

Everything a benchmark folder writes in Jinja runs here, in a sandbox, compiled once and strict: a
name that the row does not have is an error, never an empty string.  Beside Jinja's own filters
there are ``after_last(marker)``, ``letter`` and ``letter_in(choices)``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import isnan
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError, meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from evalray.benchmarks import Benchmark
from evalray.errors import ConfigError, EvalRayError, Problem
from evalray.types import RunConfig

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

Row = Mapping[str, Any]


class RowError(EvalRayError):
    """One row cannot become a record; the message is the reason, without the place."""


def is_missing(value: object) -> bool:
    """Absent, null, NaN or blank: tables and CSV files write "nothing" in all these ways."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, float) and isnan(value))


def as_text(value: object) -> str:
    """A cell as text: strings as they are, everything else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


# -- filters ------------------------------------------------------------------------------------


def after_last(text: object, marker: str) -> str:
    """What follows the last ``marker``, trimmed; the whole text where the marker does not occur."""
    return as_text(text).rpartition(marker)[2].strip()


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


@lru_cache(maxsize=1)
def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, autoescape=False, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(after_last=after_last, letter=letter, letter_in=letter_in)
    return environment


class TextTemplate:
    """A Jinja source, compiled once.

    ``columns`` are the names it reads; ``printed`` those it prints outside every condition and
    without a filter, which therefore must not be empty; ``plain`` is true where it does nothing
    else, so that a row with all of them cannot fail.
    """

    __slots__ = ("_parts", "_template", "columns", "plain", "printed")

    def __init__(self, source: str, *, origin: str, key: str = "") -> None:
        environment = _environment()
        try:
            tree = environment.parse(source)
            self._template: Template = environment.from_string(source)
        except TemplateError as error:
            line = getattr(error, "lineno", None)
            where = f"line {line}: " if line else ""
            raise ConfigError([Problem(origin, key, f"{where}{error}", "see the Jinja syntax")]) from None
        self.columns = frozenset(meta.find_undeclared_variables(tree) - environment.globals.keys())
        outputs = [node for node in tree.body if isinstance(node, nodes.Output)]
        pieces = [piece for output in outputs for piece in output.nodes]
        self.printed = frozenset(
            piece.name for piece in pieces if isinstance(piece, nodes.Name) and piece.name in self.columns
        )
        self.plain = len(outputs) == len(tree.body) and all(
            isinstance(piece, nodes.TemplateData)
            or (isinstance(piece, nodes.Name) and piece.name in self.printed)
            for piece in pieces
        )
        # (literal, column) pairs: joining them is a tenth of the cost of a Jinja render
        self._parts: list[tuple[str, str]] = [
            (piece.data, "") if isinstance(piece, nodes.TemplateData) else ("", piece.name)
            for piece in pieces
            if self.plain and isinstance(piece, nodes.TemplateData | nodes.Name)
        ]

    @classmethod
    def of_column(cls, column: str) -> TextTemplate:
        """Prints one column, whatever its name."""
        template = cls("", origin="")
        template.columns = template.printed = frozenset({column})
        template._parts = [("", column)]
        return template

    def render(self, row: Row) -> str:
        """Raises :class:`RowError` with the reason."""
        try:
            if self.plain:
                return "".join([str(row[column]) if column else literal for literal, column in self._parts])
            return self._template.render(row)
        except KeyError as error:
            raise RowError(f"{error} is undefined") from None
        except RowError:
            raise
        except Exception as error:  # noqa: BLE001
            # a template may fail in as many ways as the data has shapes; each is one bad row
            raise RowError(f"{type(error).__name__}: {error}") from None


class Field:
    """A column name, or a Jinja expression when it contains ``{{``: a row's value as text."""

    __slots__ = ("_column", "_template", "columns")

    def __init__(self, source: str, *, origin: str, key: str) -> None:
        self._template = TextTemplate(source, origin=origin, key=key) if "{{" in source else None
        self._column = source
        self.columns = self._template.columns if self._template else frozenset({source})

    def text(self, row: Row) -> str:
        """Empty where the column is missing.  Raises :class:`RowError` where an expression fails."""
        if self._template is not None:
            return self._template.render(row)
        value = row.get(self._column)
        return "" if is_missing(value) else as_text(value)


def _prompt_source(benchmark: Benchmark) -> TextTemplate:
    origin, problem = str(benchmark.folder / "prompt.jinja"), benchmark.fields.get("problem")
    if benchmark.prompt_template.strip():
        return TextTemplate(benchmark.prompt_template, origin=origin)
    if not problem:
        raise ConfigError([Problem(origin, "", "the prompt is empty", "write at least {{ question }}")])
    if "{{" not in problem:
        return TextTemplate.of_column(problem)
    return TextTemplate(problem, origin=str(benchmark.folder / "benchmark.toml"), key="fields.problem")


class PromptTemplate:
    """``prompt.jinja``, or without it the field ``problem``, with the lettered options of the ``choices`` column, where there is one."""

    __slots__ = ("_template", "choices", "columns", "plain")

    def __init__(self, benchmark: Benchmark) -> None:
        self._template = _prompt_source(benchmark)
        self.choices = benchmark.choices
        own = {"options"} if benchmark.choices else set()
        extra = {benchmark.choices} if benchmark.choices else set()
        self.columns = frozenset((self._template.columns - own) | extra)
        self.plain = self._template.plain and not benchmark.choices

    def render(self, row: Row) -> tuple[str, list[dict[str, str]]]:
        """The user's message and the options (empty where the benchmark has none)."""
        self.require_columns(row)
        if self.choices is None:
            return self._template.render(row), []
        options = lettered_options(row[self.choices])
        return self._template.render({**row, "options": options}), options

    def require_columns(self, row: Row) -> None:
        """Raises :class:`RowError` where a column that the prompt prints as it is has nothing in it."""
        for column in self._template.printed:
            if is_missing(row.get(column)):
                raise RowError(f"column {column!r} is {'empty' if column in row else 'missing'}")
        if self.choices is not None and is_missing(row.get(self.choices)):
            raise RowError(f"column {self.choices!r} with the options is missing or empty")


def benchmark_field(benchmark: Benchmark, name: str) -> Field | None:
    """The compiled ``fields`` entry, or ``None`` where the benchmark does not map it."""
    source = benchmark.fields.get(name)
    if not source:
        return None
    return Field(source, origin=str(benchmark.folder / "benchmark.toml"), key=f"fields.{name}")


def template_problems(benchmark: Benchmark) -> list[Problem]:
    """Everything wrong with a benchmark's prompt and field expressions, for whoever loads the folder."""
    problems: list[Problem] = []
    try:
        PromptTemplate(benchmark)
    except ConfigError as error:
        problems += error.problems
    for name in benchmark.fields.keys() - {"problem"}:
        try:
            benchmark_field(benchmark, name)
        except ConfigError as error:
            problems += error.problems
    return problems


# -- few-shot and fingerprint -------------------------------------------------------------------


def fewshot_messages(benchmark: Benchmark, n: int) -> tuple[dict[str, str], ...]:
    """The first ``n`` rows of ``fewshot.jsonl`` as user and assistant turns.

    The user's turn is the benchmark's own prompt; the assistant's is ``fields.fewshot_answer``,
    or the reference where that is not given.  Raises :class:`ConfigError`.
    """
    if n <= 0:
        return ()
    origin = str(benchmark.folder / "fewshot.jsonl")
    if n > len(benchmark.fewshot):
        message = f"{n} examples asked for, there are {len(benchmark.fewshot)}"
        raise ConfigError([Problem(origin, "num_fewshot", message, "lower num_fewshot or add rows")])
    prompt = PromptTemplate(benchmark)
    answer = benchmark_field(benchmark, "fewshot_answer") or benchmark_field(benchmark, "reference")
    if answer is None:
        message = "examples need an answer"
        raise ConfigError(
            [Problem(str(benchmark.folder / "benchmark.toml"), "fields.fewshot_answer", message)]
        )
    turns: list[dict[str, str]] = []
    for index, row in enumerate(benchmark.fewshot[:n]):
        try:
            question, reply = prompt.render(row)[0], answer.text(row)
            if not reply.strip():
                raise RowError("the answer is empty")
        except RowError as error:
            raise ConfigError([Problem(f"{origin}:{index + 1}", "", str(error))]) from None
        turns += [{"role": "user", "content": question}, {"role": "assistant", "content": reply}]
    return tuple(turns)


def prompt_hash(benchmark: Benchmark, config: RunConfig) -> str:
    """SHA-256 (hex) of all that decides what a model is asked for a given row.

    The id mapping is in it although no model sees it: finished samples are found again by record
    id, so that other ids are another run.
    """
    decisive = {
        "template": benchmark.prompt_template or benchmark.fields.get("problem"),
        "choices": benchmark.choices,
        "id": benchmark.fields.get("id"),
        "fewshot": fewshot_messages(benchmark, config.num_fewshot),
        "system": config.system_prompt,
    }
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()
