"""Find, load and list benchmark definitions: folders with ``benchmark.toml``, ``prompt.jinja`` and
``sample.jsonl``.

A folder's name is the benchmark's name.  ``./benchmarks`` comes first, then each folder named in
``EVALRAY_BENCHMARKS``, then those that come with the package; the first one found wins, and what
it hides is said.  A folder that is wrong is listed as broken and never stops the others.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evalray.definition import Attachments, Benchmark
from evalray.errors import ConfigError, Problem
from evalray.prompts import template_problems
from evalray.settings import STRICT, RunDefaults, settings_given
from evalray.validation import nearest_hint, problems_of, read_table

#: As a run's ``data``: the rows that come with the benchmark.
SAMPLE = "sample"

_OneOrMore = str | Annotated[list[str], Field(min_length=1)]


class _Attachments(BaseModel):
    model_config = STRICT
    name: str
    path: str | None = None
    id: str | None = None


class _Data(BaseModel):
    model_config = STRICT
    path: str | None = None
    revision: str | None = None
    filter: str | None = None
    files: dict[str, _OneOrMore] = {}
    attachments: _Attachments | None = None
    subset: str | None = None
    split: str = "test"
    streaming: bool = False
    gated: bool = False


class _Fields(BaseModel):
    model_config = STRICT
    id: _OneOrMore | None = None
    problem: _OneOrMore | None = None
    reference: _OneOrMore | None = None
    subject: _OneOrMore | None = None
    choices: _OneOrMore | None = None
    shuffle_choices: bool = False
    metadata: list[str] = []
    fewshot_answer: str | None = None


class _Scorer(BaseModel):
    """Keys beside ``name`` and ``args`` are arguments too."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    name: str = "exact"
    args: dict[str, Any] = {}


class _Definition(BaseModel):
    """``benchmark.toml``."""

    model_config = STRICT
    name: str | None = None
    title: str = ""
    description: str = ""
    category: str = "reasoning"
    provider: str | None = None
    data: _Data = _Data()
    columns: dict[str, str | Annotated[list[str], Field(min_length=1)]] = {}
    args: dict[str, Any] = {}
    fields: _Fields = _Fields()
    scorer: _Scorer = _Scorer()
    defaults: RunDefaults = RunDefaults()


@dataclass(slots=True, frozen=True)
class BenchmarkListing:
    """One name on the search path: the definition that wins, or what is wrong with it."""

    name: str
    folder: Path
    origin: str
    """Where on the search path: ``./benchmarks``, ``EVALRAY_BENCHMARKS`` or ``packaged``."""
    benchmark: Benchmark | None
    problems: tuple[Problem, ...] = ()
    shadows: tuple[Path, ...] = ()
    """Folders of the same name further down the search path."""


_NAME = re.compile(r"^[A-Za-z0-9][\w.-]*$")
_CLASS_PATH = re.compile(r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")


def search_path() -> list[tuple[str, Path]]:
    """``(origin, folder)`` of every existing folder that may hold benchmarks, first one first."""
    package = Path(__file__).resolve().parent
    bundled = package / "_benchmarks"
    places = [("./benchmarks", Path.cwd() / "benchmarks")]
    for named in os.environ.get("EVALRAY_BENCHMARKS", "").split(os.pathsep):
        if named.strip():
            places.append(("EVALRAY_BENCHMARKS", Path(named.strip()).expanduser()))
    places.append(("packaged", bundled if bundled.is_dir() else package.parent / "benchmarks"))
    seen: set[Path] = set()
    found = []
    for origin, folder in places:
        resolved = folder.resolve()
        if folder.is_dir() and resolved not in seen:
            seen.add(resolved)
            found.append((origin, resolved))
    return found


def _definitions() -> Iterator[tuple[str, Path]]:
    for origin, place in search_path():
        try:
            folders = sorted(place.iterdir())
        except OSError:
            continue
        for folder in folders:
            if not folder.name.startswith(".") and (folder / "benchmark.toml").is_file():
                yield origin, folder


def list_benchmarks() -> list[BenchmarkListing]:
    """Every benchmark on the search path, by name; broken ones carry their problems."""
    places: dict[str, list[tuple[str, Path]]] = {}
    for origin, folder in _definitions():
        places.setdefault(folder.name, []).append((origin, folder))
    listings = []
    for name, [(origin, folder), *hidden] in sorted(places.items()):
        benchmark: Benchmark | None = None
        problems: tuple[Problem, ...] = ()
        try:
            benchmark = load_benchmark(folder)
        except ConfigError as error:
            problems = tuple(error.problems)
        shadows = tuple(shadowed for _, shadowed in hidden)
        listings.append(BenchmarkListing(name, folder, origin, benchmark, problems, shadows))
    return listings


def find_benchmark(name: str) -> Benchmark:
    """The first benchmark of that name on the search path.

    Raises :class:`ConfigError`: no such benchmark (with the nearest name), or its folder is broken.
    """
    names = []
    for _, folder in _definitions():
        if folder.name == name:
            return load_benchmark(folder)
        names.append(folder.name)
    hint = nearest_hint(name, names)
    raise ConfigError([Problem("benchmarks", name, "no such benchmark", hint)])


def load_benchmark(folder: Path) -> Benchmark:
    """Read one benchmark's folder.  Raises :class:`ConfigError` with all that is wrong in it."""
    file = folder / "benchmark.toml"
    table = read_table(file)
    source = str(file)
    try:
        definition = _Definition.model_validate(table)
    except ValidationError as error:
        raise ConfigError(problems_of(error, source, root=_Definition)) from None
    problems = list(_name_problems(definition, folder, source))
    fields, columns = _fields_and_columns(definition)
    template = _read_template(folder, fields.pop("problem", None), definition, problems)
    fewshot = _read_fewshot(folder, problems)
    if fewshot and definition.fields.shuffle_choices:
        message = "worked examples name letters, and shuffled options have no fixed ones"
        problems.append(Problem(source, "fields.shuffle_choices", message, "remove fewshot.jsonl"))
    problems += _data_problems(folder, definition, source)
    choices = fields.pop("choices", None)
    benchmark = Benchmark(
        name=folder.name,
        folder=folder.resolve(),
        title=definition.title or folder.name,
        description=definition.description,
        category=definition.category,
        data_path=definition.data.path,
        subset=definition.data.subset,
        split=definition.data.split,
        streaming=definition.data.streaming,
        gated=definition.data.gated,
        revision=definition.data.revision,
        filter=definition.data.filter,
        files={subset: _several(names) for subset, names in definition.data.files.items()},
        attachments=_attachments(definition.data.attachments),
        columns=columns,
        args=definition.args,
        fields=fields,
        metadata_columns=tuple(definition.fields.metadata),
        choices=choices,
        shuffle_choices=definition.fields.shuffle_choices,
        prompt_template=template,
        fewshot=fewshot,
        scorer=definition.scorer.name,
        scorer_args={**(definition.scorer.model_extra or {}), **definition.scorer.args},
        defaults=settings_given(definition.defaults),
        provider=definition.provider,
    )
    if template or definition.fields.reference:
        problems += template_problems(benchmark) if definition.provider is None else []
    if problems:
        raise ConfigError(problems)
    return benchmark


def _several(names: str | list[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _attachments(written: _Attachments | None) -> Attachments | None:
    return Attachments(**written.model_dump()) if written is not None else None


def _fields_and_columns(definition: _Definition) -> tuple[dict[str, str], dict[str, str | tuple[str, ...]]]:
    """``[fields]`` by name, and ``[columns]``; a field of several columns becomes a column of its own."""
    columns: dict[str, str | tuple[str, ...]] = {
        name: made if isinstance(made, str) else tuple(made) for name, made in definition.columns.items()
    }
    fields: dict[str, str] = {}
    written = definition.fields.model_dump(exclude_none=True, exclude={"metadata", "shuffle_choices"})
    for name, source in written.items():
        if isinstance(source, list):
            columns[f"fields.{name}"] = tuple(source)
            source = f"fields.{name}"
        fields[name] = source
    return fields, columns


def _name_problems(definition: _Definition, folder: Path, source: str) -> Iterator[Problem]:
    if not _NAME.match(folder.name):
        yield Problem(
            source, "", f"folder name {folder.name!r} is no benchmark name: use letters, digits, - _ ."
        )
    if definition.name is not None and definition.name != folder.name:
        yield Problem(source, "name", f"{definition.name!r} must be the folder's name, {folder.name!r}")
    if definition.provider is not None and not _CLASS_PATH.match(definition.provider):
        yield Problem(source, "provider", f"{definition.provider!r} must be written 'module:Class'")
    if definition.fields.reference is None and definition.provider is None:
        yield Problem(source, "fields.reference", "missing: which column holds the gold answer")


def _data_problems(folder: Path, definition: _Definition, source: str) -> Iterator[Problem]:
    if definition.provider is not None:
        return
    path = definition.data.path
    if path is None and not (folder / "sample.jsonl").is_file():
        yield Problem(source, "data.path", "missing: name a data set, or put a sample.jsonl in the folder")


def _read_template(folder: Path, column: str | None, definition: _Definition, problems: list[Problem]) -> str:
    """The source of ``prompt.jinja``; without that file, the ``problem`` field as a template."""
    file = folder / "prompt.jinja"
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        pass
    except (OSError, UnicodeDecodeError) as error:
        problems.append(Problem(str(file), "", f"cannot be read as UTF-8 text: {error}"))
        return ""
    if column is not None:
        if "{{" in column:
            return column
        return f"{{{{ {column} }}}}" if column.isidentifier() else f"{{{{ row[{json.dumps(column)}] }}}}"
    if definition.provider is None:
        hint = "write the prompt, such as {{ question }}"
        problems.append(Problem(str(file), "", "no such file", hint))
    return ""


def _read_fewshot(folder: Path, problems: list[Problem]) -> tuple[dict[str, Any], ...]:
    file = folder / "fewshot.jsonl"
    if not file.is_file():
        return ()
    rows = []
    try:
        lines = file.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        problems.append(Problem(str(file), "", f"cannot be read as UTF-8 text: {error}"))
        return ()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            problems.append(Problem(str(file), f"line {number}", f"not valid JSON: {error}"))
            continue
        if isinstance(row, dict):
            rows.append(row)
        else:
            problems.append(Problem(str(file), f"line {number}", "must be an object: one row of the data"))
    return tuple(rows)
