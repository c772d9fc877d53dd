"""Reading configuration files, and turning what is wrong with them into problems a user can act on.

One problem per mistake, all of a file's at once: where it stands (file and key), what was found,
what would be right.  Values under keys that name secrets are never repeated.
"""

from __future__ import annotations

import difflib
import json
import re
import stat
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from evalray.errors import ConfigError, Problem
from evalray.settings import is_secret_key

#: Longer values are cut in messages.
_SHOWN_CHARACTERS = 80

_MOST_BYTES = 4 << 20

#: A misspelt key of a secret, or a value that begins as the usual API keys do.
_MAY_BE_SECRET = re.compile(
    r"^\S*(key|kye|token|secret|passw|auth|cred)\S* | (sk-|hf_|gsk_|xai-|AIza|gh[ps]_)", re.I
)


def read_table(path: Path) -> dict[str, Any]:
    """The table in a TOML file, or in a JSON file by its extension.  Raises :class:`ConfigError`."""
    source = str(path)
    try:
        text = _read(path).decode("utf-8-sig")
    except FileNotFoundError:
        hint = nearest_hint(path.name, _names_beside(path))
        raise ConfigError([Problem(source, "", "no such file", hint)]) from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            [Problem(source, "", f"not UTF-8 text (byte {error.start}): save it as UTF-8")]
        ) from None
    except OSError as error:
        raise ConfigError([Problem(source, "", f"cannot be read: {error.strerror or error}")]) from None
    is_json = path.suffix.lower() == ".json"
    try:
        table = json.loads(text) if is_json else tomllib.loads(text)
    except RecursionError:
        raise ConfigError([Problem(source, "", "nested too deeply")]) from None
    except ValueError as error:
        kind = "JSON" if is_json else "TOML"
        raise ConfigError([Problem(source, "", f"not valid {kind}: {error}")]) from None
    if not isinstance(table, dict):
        raise ConfigError([Problem(source, "", "must hold a table of settings at its top")])
    return table


def _read(path: Path) -> bytes:
    """The file's content.  Raises :class:`ConfigError` for one that has no end, or is no configuration."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise ConfigError([Problem(str(path), "", "is no regular file: write the settings to a file")])
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        message = f"is larger than {_MOST_BYTES >> 20} MiB, which is no file of settings"
        raise ConfigError([Problem(str(path), "", message)])
    return content


def _names_beside(path: Path) -> list[str]:
    try:
        return [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return []


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that looks most like ``name``; ``None`` when none comes close."""
    by_fold = {candidate.lower().replace("_", "-"): candidate for candidate in sorted(known)}
    matches = difflib.get_close_matches(name.lower().replace("_", "-"), by_fold, n=1, cutoff=0.5)
    return by_fold[matches[0]] if matches else None


def nearest_hint(name: str, known: Iterable[str]) -> str:
    """``did you mean 'x'?``, or a list of the few names there are, or nothing."""
    names = sorted(known)
    if (match := nearest(name, names)) is not None:
        return f"did you mean {match!r}?"
    return "one of: " + ", ".join(names) if 0 < len(names) <= 8 else ""


def shown(value: object, key: str = "") -> str:
    """A value as a message repeats it: short, on one line, never a secret."""
    if is_secret_key(key) or (isinstance(value, str) and _MAY_BE_SECRET.search(f"{key} {value}")):
        return "(not shown)"
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "a list of tables"
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"


def key_path(location: Sequence[str | int]) -> str:
    """``("models", 1, "temperature")`` as ``models[1].temperature``."""
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path


def problems_of(
    error: ValidationError,
    source: str,
    *,
    root: type[BaseModel],
    also_known: Iterable[str] = (),
) -> list[Problem]:
    """Every mistake pydantic found, in the order of the file.

    ``root`` is the model that was validated: the nearest valid key is looked up in the part of it
    where an unknown key stands.  ``also_known`` are keys that are valid though no field has them.
    """
    return [_problem(dict(detail), source, root, also_known) for detail in error.errors(include_url=False)]


def _problem(
    detail: dict[str, Any], source: str, root: type[BaseModel], also_known: Iterable[str]
) -> Problem:
    location: tuple[str | int, ...] = detail["loc"]
    key = key_path(location)
    last = next((str(part) for part in reversed(location) if isinstance(part, str)), "")
    kind, message, value = detail["type"], detail["msg"], detail["input"]
    if kind == "extra_forbidden":
        section = _model_at(root, location[:-1])
        known = [*(section.model_fields if section else ()), *also_known]
        return Problem(source, key, f"unknown key (value {shown(value, last)})", nearest_hint(last, known))
    if kind == "missing":
        return Problem(source, key, "missing")
    if kind == "secret":
        return Problem(source, key, message)
    hint = ""
    if kind == "list_type" and isinstance(value, dict):
        hint = f"write [[{key}]] in double brackets"
    elif kind in ("model_type", "dict_type") and isinstance(value, list):
        hint = f"write [{key}] in single brackets"
    requirement = message.replace("Input should be", "must be").replace("Value error, ", "")
    return Problem(source, key, f"{shown(value, last)} {requirement}", hint)


def _model_at(root: type[BaseModel], location: Sequence[str | int]) -> type[BaseModel] | None:
    model: type[BaseModel] | None = root
    for part in location:
        if isinstance(part, int):
            continue
        field = model.model_fields.get(part) if model else None
        model = _model_in(field.annotation) if field else None
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        if (model := _model_in(inner)) is not None:
            return model
    return None
