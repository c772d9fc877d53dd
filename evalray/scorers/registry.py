"""Scorers by name: find, check the arguments, build, fingerprint.

A scorer is built before any engine starts, so that a wrong name or argument stops the run before
it costs anything.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from evalray.backend import InferenceBackend
from evalray.errors import ConfigError, Problem
from evalray.scorers.base import Scorer

#: Name to ``module:Class``.  Users name their own the same way.
SCORERS: dict[str, str] = {
    "mcq": "evalray.scorers.mcq:MCQScorer",
    "number": "evalray.scorers.number:NumberScorer",
    "exact": "evalray.scorers.exact:ExactScorer",
    "math": "evalray.scorers.math:MathScorer",
    "reasoning": "evalray.scorers.graded:ReasoningScorer",
    "simpleqa": "evalray.scorers.graded:SimpleQAScorer",
    "frames": "evalray.scorers.graded:FramesScorer",
    "hle": "evalray.scorers.graded:HLEScorer",
    "gaia": "evalray.scorers.gaia:GAIAScorer",
    "wildchat": "evalray.scorers.wildchat:WildChatScorer",
}

_BACKEND_ARGUMENTS = ("judge_backend", "judge_model")


def build_scorer(
    name: str,
    args: Mapping[str, Any] | None = None,
    *,
    judge_backend: InferenceBackend | None = None,
    judge_model: str = "",
) -> Scorer:
    """The scorer called ``name`` (one of :data:`SCORERS`, or ``module:Class``) with its arguments.

    ``judge_backend`` and ``judge_model`` are for a scorer with ``needs_backend``; without a backend
    it is built with one whose every call fails, so that its arguments can be checked early.
    Raises :class:`ConfigError` for an unknown name, and with every wrong argument at once.
    """
    scorer_class = _load(name)
    arguments = dict(args or {})
    problems = _argument_problems(name, scorer_class, arguments)
    if problems:
        raise ConfigError(problems)
    if scorer_class.needs_backend:
        from evalray.scorers.llm_judge import NoJudgeBackend

        arguments["judge_backend"] = judge_backend or NoJudgeBackend()
        arguments["judge_model"] = judge_model
    try:
        scorer = scorer_class(**arguments)
    except (Exception, SystemExit) as error:  # a user's class can raise anything while it is built
        said = str(error) if isinstance(error, TypeError | ValueError) else f"{type(error).__name__}: {error}"
        raise ConfigError([Problem(f"scorer {name}", "scorer_args", said)]) from error
    if scorer.isolated and scorer.uses_judge:
        message = "a scorer cannot be isolated and ask a judge"
        raise ConfigError([Problem(f"scorer {name}", "", message, "set isolated or uses_judge to False")])
    return scorer


def scorer_fingerprint(
    scorer: Scorer, args: Mapping[str, Any] | None = None, *, judge: Mapping[str, Any] | None = None
) -> str:
    """16 hex digits over the scorer's identity, rule version and arguments, and over who judges.

    ``judge`` is whatever can change a verdict (model, engine, temperature, ...), no secret; it
    counts only for a scorer that asks one.  The same for the same rules in any process; another one
    means that stored answers are scored again.
    """
    kind = type(scorer)
    identity: list[Any] = [
        kind.scorer_id,
        kind.version,
        f"{kind.__module__}:{kind.__qualname__}",
        dict(args or {}),
    ]
    if judge and scorer.uses_judge:
        identity.append(dict(judge))
    canonical = json.dumps(identity, sort_keys=True, ensure_ascii=True, default=repr)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def _load(name: str) -> type[Scorer]:
    target = SCORERS.get(name, name)
    module_name, colon, class_name = target.partition(":")
    if not colon:
        near = difflib.get_close_matches(name, SCORERS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(SCORERS))}, or module:Class"
        raise ConfigError([Problem(name, "scorer", f"unknown scorer {name!r}", hint)])
    try:
        found = getattr(importlib.import_module(module_name), class_name, None)
    except (Exception, SystemExit) as error:  # a user's module can raise anything while it is imported
        message = f"cannot import {module_name}: {type(error).__name__}: {error}"
        file = module_name.endswith(".py")
        hint = f"write {Path(module_name).stem}:{class_name}, with its folder on PYTHONPATH" if file else ""
        raise ConfigError(
            [Problem(name, "scorer", message, hint or "is its folder on PYTHONPATH?")]
        ) from error
    if not (inspect.isclass(found) and issubclass(found, Scorer)):
        message = f"{module_name} has no Scorer class {class_name!r}"
        raise ConfigError([Problem(name, "scorer", message, "subclass evalray.scorers.Scorer")])
    if not isinstance(getattr(found, "scorer_id", None), str):
        raise ConfigError([Problem(name, "scorer", f"{class_name} has no scorer_id", "give it one")])
    return found


def scorer_arguments(name: str) -> list[str]:
    """The names of the arguments that a scorer takes.  Raises :class:`ConfigError` for an unknown one."""
    return list(_accepted(_load(name)))


def _accepted(scorer_class: type[Scorer]) -> dict[str, inspect.Parameter]:
    given_by_us = _BACKEND_ARGUMENTS if scorer_class.needs_backend else ()
    return {
        parameter.name: parameter
        for parameter in list(inspect.signature(scorer_class.__init__).parameters.values())[1:]
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        and parameter.name not in given_by_us
    }


def _argument_problems(name: str, scorer_class: type[Scorer], args: dict[str, Any]) -> list[Problem]:
    accepted = _accepted(scorer_class)
    takes_any = (
        any(
            parameter.kind is parameter.VAR_KEYWORD
            for parameter in inspect.signature(scorer_class.__init__).parameters.values()
        )
        and scorer_class.__init__ is not object.__init__
    )
    source = f"scorer {name}"
    problems: list[Problem] = []
    try:
        types = get_type_hints(scorer_class.__init__)
    except (NameError, TypeError):
        types = {}
    for key, value in args.items():
        if key not in accepted:
            if not takes_any:
                near = difflib.get_close_matches(key, accepted, n=1)
                known = f"takes: {', '.join(accepted) or 'no arguments'}"
                problems.append(
                    Problem(source, key, "unknown argument", f"did you mean {near[0]}?" if near else known)
                )
            continue
        try:
            if key in types:
                TypeAdapter(types[key]).validate_python(value, strict=True)
        except ValidationError as error:
            problems.append(Problem(source, key, f"{error.errors()[0]['msg']}, got {value!r}"))
    missing = [
        key for key, parameter in accepted.items() if parameter.default is parameter.empty and key not in args
    ]
    problems.extend(Problem(source, key, "missing argument") for key in missing)
    return problems
