"""From a suite file to a :class:`Suite`, or to one error that names all that is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from evalray.errors import ConfigError, Problem
from evalray.suite.checks import check_names
from evalray.suite.hints import misplaced_hint
from evalray.suite.models import BenchmarkEntry, ModelEntry, Suite
from evalray.suite.openjarvis import IGNORED_KEYS
from evalray.suite.registry import Registry
from evalray.validation import nearest_hint, problems_of, read_table

Entry = TypeVar("Entry", ModelEntry, BenchmarkEntry)

_IGNORED_PREFIXES = {"wandb_": "use [tracking] (MLflow)", "sheets_": "open the results' files instead"}


def load_suite(path: str | Path, registry: Registry | None = None) -> Suite:
    """Read a suite file: TOML, or JSON by its extension.  Raises :class:`ConfigError`."""
    file = Path(path)
    suite = suite_from_table(read_table(file), str(file), registry)
    suite._source = file
    return suite


def suite_from_table(table: dict[str, Any], source: str, registry: Registry | None = None) -> Suite:
    """Validate a suite given as plain data; ``source`` is what messages call it.

    Raises :class:`ConfigError` with every problem.
    """
    registry = registry or Registry.installed()
    ignored: dict[str, list[str]] = {}
    problems: list[Problem] = []
    table = _without_ignored_keys(table, source, ignored, problems)
    warnings = [f"{source}: {', '.join(keys)}: ignored ({reason})" for reason, keys in ignored.items()]
    suite: Suite | None = None
    try:
        suite = Suite.model_validate(table)
    except ValidationError as error:
        also_known = {key for keys in IGNORED_KEYS.values() for key in keys} - {"api_key"}
        problems += map(_explained, problems_of(error, source, root=Suite, also_known=also_known))
    problems += check_names(table, source, registry)
    if problems or suite is None:
        raise ConfigError(problems)
    suite.models = _without_repeats(suite.models, "models", source, warnings)
    suite.benchmarks = _without_repeats(suite.benchmarks, "benchmarks", source, warnings)
    suite._warnings = [*warnings, *_without_effect(suite, source)]
    return suite


def _without_effect(suite: Suite, source: str) -> Iterator[str]:
    """One line for each setting that another one leaves without effect."""
    run, telemetry, tracking = suite.run, suite.telemetry, suite.tracking
    if "gpu_metrics" in run.model_fields_set:
        yield f"{source}: run.gpu_metrics: ignored (GPUs are measured wherever run.telemetry is on)"
    figures = [key for key in ("estimate", "grid_gco2e_per_kwh") if getattr(telemetry, key)]
    if not run.telemetry and figures:
        keys = ", ".join(f"telemetry.{key}" for key in figures)
        yield f"{source}: {keys}: without effect (run.telemetry is off)"
    stores = [key for key in ("uri", "experiment") if getattr(tracking, key)]
    if not tracking.enabled and stores:
        keys = ", ".join(f"tracking.{key}" for key in stores)
        yield f"{source}: {keys}: without effect (tracking.enabled is off)"


def _explained(problem: Problem) -> Problem:
    """The same problem, with what to do instead where a key of another tool says what was meant."""
    if problem.key.startswith(("models[", "judge")) and problem.key.endswith(".api_key"):
        message = "a key does not belong in a file"
        hint = "name the environment variable that holds it: api_key_env"
        return Problem(problem.source, problem.key, message, hint)
    if problem.message.startswith("unknown key") and (hint := misplaced_hint(problem.key) or "") != "":
        return Problem(problem.source, problem.key, problem.message, hint)
    return problem


def _without_ignored_keys(
    table: dict[str, Any], source: str, ignored: dict[str, list[str]], problems: list[Problem]
) -> dict[str, Any]:
    """``table`` without the keys that are known and not acted on, which are added to ``ignored`` by their reason."""
    kept: dict[str, Any] = {}
    for section, content in table.items():
        if section == "backend":
            _check_backend_section(content, source, ignored, problems)
        elif isinstance(content, dict):
            kept[section] = _filtered(content, section, section, ignored)
        elif isinstance(content, list):
            kept[section] = [
                _filtered(entry, section, f"{section}[{index}]", ignored)
                if isinstance(entry, dict)
                else entry
                for index, entry in enumerate(content)
            ]
        else:
            kept[section] = content
    return kept


def _filtered(
    entry: dict[str, Any], section: str, where: str, ignored: dict[str, list[str]]
) -> dict[str, Any]:
    kept = {}
    for key, value in entry.items():
        reason = IGNORED_KEYS.get(section, {}).get(key)
        if reason is None and section == "run":
            reason = next((why for prefix, why in _IGNORED_PREFIXES.items() if key.startswith(prefix)), None)
        if reason is None:
            kept[key] = value
        else:
            ignored.setdefault(reason, []).append(f"{where}.{key}")
    return kept


def _check_backend_section(
    content: Any, source: str, ignored: dict[str, list[str]], problems: list[Problem]
) -> None:
    """``[backend.external]`` is OpenJarvis's: warned about as a whole, and never kept."""
    if not isinstance(content, dict):
        problems.append(Problem(source, "backend", "must be a table", "write [backend.external]"))
        return
    for key, inner in content.items():
        if key != "external" or not isinstance(inner, dict):
            problems.append(Problem(source, f"backend.{key}", "unknown key", nearest_hint(key, ["external"])))
            continue
        known = IGNORED_KEYS["backend.external"]
        unknown = [name for name in inner if name not in known]
        problems += (
            Problem(source, f"backend.external.{name}", "unknown key", nearest_hint(name, known))
            for name in unknown
        )
        _filtered(inner, "backend.external", "backend.external", ignored)


def _without_repeats(entries: list[Entry], section: str, source: str, warnings: list[str]) -> list[Entry]:
    kept: list[Entry] = []
    for index, entry in enumerate(entries):
        if entry in kept:
            warnings.append(f"{source}: {section}[{index}]: repeats an entry above, left out")
        else:
            kept.append(entry)
    return kept
