"""Find, load and list benchmark definitions: folders with ``benchmark.toml``, ``prompt.jinja`` and
``sample.jsonl``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


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
    fields: dict[str, str] = field(default_factory=dict)
    metadata_columns: tuple[str, ...] = ()
    """Columns kept in ``EvalRecord.metadata``."""
    choices: str | None = None
    """Column holding the list of options of a multiple-choice question."""
    prompt_template: str = ""
    """Source of ``prompt.jinja``: rendered over the row's columns (and ``options``)."""
    fewshot: tuple[dict[str, Any], ...] = ()
    """Rows of ``fewshot.jsonl``; ``fields["fewshot_answer"]`` renders the assistant's turn."""
    scorer: str = "exact"
    scorer_args: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    provider: str | None = None
    """``module:Class`` of a :class:`~evalray.datasets.base.DatasetProvider` of its own."""
