"""From a row of data to the text a model sees: the prompt, the fields, few-shot turns.

A benchmark's templates are compiled once (:mod:`evalray.templates`) over the row and its derived
columns (:mod:`evalray.columns`).
"""

from __future__ import annotations

import hashlib
import json

from evalray.columns import ARGS, Columns, RowFiltered
from evalray.definition import Benchmark
from evalray.errors import ConfigError, Problem
from evalray.templates import (
    LETTERS,
    Row,
    RowError,
    TextTemplate,
    after_last,
    as_text,
    is_missing,
    letter,
    letter_in,
    lettered_options,
)
from evalray.types import RunConfig

__all__ = [
    "LETTERS",
    "Columns",
    "Field",
    "PromptTemplate",
    "Row",
    "RowError",
    "RowFiltered",
    "TextTemplate",
    "absence",
    "after_last",
    "as_text",
    "benchmark_field",
    "choice_order",
    "fewshot_messages",
    "is_missing",
    "letter",
    "letter_in",
    "lettered_options",
    "prompt_hash",
    "template_problems",
]


def choice_order(key: str, count: int) -> list[int]:
    """A permutation of ``count`` options that ``key`` alone decides, in every release the same."""

    def place(option: int) -> bytes:
        return hashlib.blake2b(f"{key}\x1f{option}".encode("utf-8", "surrogatepass"), digest_size=8).digest()

    return sorted(range(count), key=place)


def absence(row: Row, column: str, *names: str) -> str:
    """What to say of a column with nothing in it; ``names`` are what it goes by in the data."""
    state = "empty" if column in row else "missing"
    return f"column {' or '.join(map(repr, names or (column,)))} is {state}"


class Field:
    """A column name, or a Jinja expression when it contains ``{{``: a row's value as text."""

    __slots__ = ("_column", "_template", "columns")

    def __init__(self, source: str, *, origin: str, key: str) -> None:
        self._template = TextTemplate(source, origin=origin, key=key) if "{{" in source else None
        self._column = source
        self.columns = self._template.columns - {ARGS} if self._template else frozenset({source})

    def text(self, row: Row) -> str:
        """Empty where the column is missing.  Raises :class:`RowError` where an expression fails, or would
        print a column that is not there."""
        if self._template is not None:
            if (absent := self._template.absent(row)) is not None:
                raise RowError(absence(row, absent))
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
    """``prompt.jinja`` over a row with its derived columns, and the lettered ``options`` of ``choices``."""

    __slots__ = ("_names_behind", "_template", "choices", "columns", "plain")

    def __init__(self, benchmark: Benchmark, columns: Columns | None = None) -> None:
        self._template = _prompt_source(benchmark)
        self._names_behind = (columns or Columns(benchmark)).names_behind
        self.choices = benchmark.choices
        own = {"options"} if benchmark.choices else set()
        extra = {benchmark.choices} if benchmark.choices else set()
        self.columns = frozenset((self._template.columns - own - {ARGS}) | extra)
        self.plain = self._template.plain and not benchmark.choices

    def render(self, row: Row, shuffle_by: str | None = None) -> tuple[str, list[dict[str, str]], list[int]]:
        """The user's message; the options as they are lettered, and which option each was in the data.

        ``shuffle_by`` decides their order; without it they stay in the data's.  Options and order
        are empty where the benchmark has none.  Raises :class:`RowError`.
        """
        self.require_columns(row)
        if self.choices is None:
            return self._template.render(row), [], []
        options = lettered_options(row[self.choices])
        order = list(range(len(options)))
        if shuffle_by is not None:
            order = choice_order(shuffle_by, len(options))
            options = [
                {"letter": LETTERS[place], "text": options[was]["text"]} for place, was in enumerate(order)
            ]
        return self._template.render({**row, "options": options}), options, order

    def require_columns(self, row: Row) -> None:
        """Raises :class:`RowError` where a column that the prompt prints, or that holds the options, has nothing in it."""
        for column in (self._template.absent(row), self.choices):
            if column is not None and is_missing(row.get(column)):
                raise RowError(absence(row, column, *self._names_behind(column)))


def benchmark_field(benchmark: Benchmark, name: str) -> Field | None:
    """The compiled ``fields`` entry, or ``None`` where the benchmark does not map it."""
    source = benchmark.fields.get(name)
    if not source:
        return None
    return Field(source, origin=str(benchmark.folder / "benchmark.toml"), key=f"fields.{name}")


def template_problems(benchmark: Benchmark) -> list[Problem]:
    """Everything wrong with a benchmark's prompt and field expressions, for whoever loads the folder."""
    problems: list[Problem] = []
    for compiled in (Columns, PromptTemplate):
        try:
            compiled(benchmark)
        except ConfigError as error:
            problems += [problem for problem in error.problems if problem not in problems]
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
    columns, prompt = Columns(benchmark), PromptTemplate(benchmark)
    answer = benchmark_field(benchmark, "fewshot_answer") or benchmark_field(benchmark, "reference")
    if answer is None:
        message = "examples need an answer"
        raise ConfigError(
            [Problem(str(benchmark.folder / "benchmark.toml"), "fields.fewshot_answer", message)]
        )
    turns: list[dict[str, str]] = []
    for index, row in enumerate(benchmark.fewshot[:n]):
        try:
            derived = columns.derive(row, filtered=False)
            question, reply = prompt.render(derived)[0], answer.text(derived)
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
        "columns": list(benchmark.columns.items()),
        "shuffle_choices": benchmark.shuffle_choices,
        "id": benchmark.fields.get("id"),
        "fewshot": fewshot_messages(benchmark, config.num_fewshot),
        "system": config.system_prompt,
    }
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()
