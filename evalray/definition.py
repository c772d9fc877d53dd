"""A benchmark's definition, as its folder declares it: plain data that everything else reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(slots=True, frozen=True)
class Attachments:
    """Columns that lead to the file which comes with a question."""

    name: str
    """Holds the file's name; empty where the question has no file."""
    path: str | None = None
    """Holds its path within the data set."""
    id: str | None = None
    """Holds the id that the file's name contains."""


@dataclass(slots=True, frozen=True)
class Benchmark:
    """A benchmark definition, as its folder declares it.

    ``fields`` maps ``id``, ``reference``, ``subject`` to a column name, or to a Jinja expression
    over the row's columns when it contains ``{{``.  ``defaults`` holds run settings
    (``max_tokens``, ``temperature``, ``stop``, ``system_prompt``, ...), lowest in precedence but
    for the built-in ones.
    """

    name: str
    folder: Path
    title: str = ""
    description: str = ""
    category: str = "reasoning"
    data_path: str | None = None
    """Hub name, or a path relative to ``folder``; ``None`` uses ``sample.jsonl``."""
    subset: str | None = None
    split: str = "test"
    streaming: bool = False
    gated: bool = False
    revision: str | None = None
    """Commit, tag or branch of the hub's data set; ``None`` takes the newest."""
    filter: str | None = None
    """Jinja expression, without braces: rows for which it is false do not belong to the benchmark."""
    files: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By subset, the data's files within a repository or folder, first found first; ``{split}``
    stands for the split.  A hub repository is then downloaded as it is, attachments and all."""
    attachments: Attachments | None = None
    columns: dict[str, str | tuple[str, ...]] = field(default_factory=dict)
    """Derived columns, in order: a Jinja expression, or columns of which the first that has something counts."""
    args: dict[str, Any] = field(default_factory=dict)
    """What a suite may set with ``args = {...}``, and the values it has otherwise; ``args`` in expressions."""
    fields: dict[str, str] = field(default_factory=dict)
    metadata_columns: tuple[str, ...] = ()
    """Columns kept in ``EvalRecord.metadata``."""
    choices: str | None = None
    """Column holding the list of options of a multiple-choice question."""
    shuffle_choices: bool = False
    """Options come in an order drawn from the record's id: the same in every run, the gold letter spread."""
    prompt_template: str = ""
    """Source of ``prompt.jinja``: rendered over the row's columns (and ``options``)."""
    fewshot: tuple[dict[str, Any], ...] = ()
    """Rows of ``fewshot.jsonl``; ``fields["fewshot_answer"]`` renders the assistant's turn."""
    scorer: str = "exact"
    scorer_args: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    provider: str | None = None
    """``module:Class`` of a :class:`~evalray.datasets.base.DatasetProvider` of its own."""
