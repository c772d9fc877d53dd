"""What the command line says: the highest layer of configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from evalray.errors import ConfigError, Problem
from evalray.settings import STRICT, Count, HttpAddress, Name, NonNegative, Port, Seed, TrackingFlag
from evalray.suite import openjarvis
from evalray.suite.names import folder_name_problem, slug
from evalray.suite.registry import Registry
from evalray.validation import nearest_hint, problems_of

COMMAND_LINE = "command line"


@dataclass(frozen=True, slots=True)
class Overrides:
    """Flags of ``run`` and ``plan``; ``None`` is "not given".

    ``benchmark`` and ``model`` select among a suite's entries, or make the matrix where there is no
    suite.  ``output`` is ``-o``: where a single run's rows are also written.
    """

    benchmark: Sequence[str] | None = None
    model: Sequence[str] | None = None
    engine: str | None = None
    backend: str | None = None
    agent: str | None = None
    tools: str | Sequence[str] | None = None
    """A list, or comma-separated."""
    max_samples: int | None = None
    max_workers: int | None = None
    seed: int | None = None
    split: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    judge_model: str | None = None
    judge_engine: str | None = None
    judge_base_url: str | None = None
    data: str | None = None
    base_url: str | None = None
    output_dir: str | Path | None = None
    output: str | Path | None = None
    sweep_id: str | None = None
    address: str | None = None
    tracking_uri: str | None = None
    tracking_enabled: bool | None = None
    max_cost_usd: float | None = None
    max_tokens_total: int | None = None
    telemetry: bool | None = None
    gpu_metrics: bool | None = None
    prometheus_port: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.tools, str):
            names = [name.strip() for name in self.tools.split(",")]
            object.__setattr__(self, "tools", [name for name in names if name])
        for key in ("output_dir", "output"):
            if isinstance(value := getattr(self, key), Path):
                object.__setattr__(self, key, str(value))

    def given(self, *keys: str) -> dict[str, Any]:
        """Those of ``keys`` that were given, as a layer of configuration."""
        return {key: value for key in keys if (value := getattr(self, key)) is not None}

    def check(self, registry: Registry) -> None:
        """Raises :class:`ConfigError` with every impossible value, named by its flag."""
        values = {
            field.name: list(value) if isinstance(value, list | tuple) else value
            for field in fields(self)
            if (value := getattr(self, field.name)) is not None
        }
        problems: list[Problem] = []
        try:
            _Values.model_validate(values)
        except ValidationError as error:
            problems += (_by_flag(problem) for problem in problems_of(error, COMMAND_LINE, root=_Values))
        for flag, engine in (("--engine", self.engine), ("--judge-engine", self.judge_engine)):
            if engine is not None and registry.engine_name(engine) is None:
                hint = nearest_hint(engine, registry.known_engines)
                problems.append(Problem(COMMAND_LINE, flag, f"unknown engine {engine!r}", hint))
        if self.backend is not None and self.backend not in openjarvis.BACKENDS:
            hint = nearest_hint(self.backend, openjarvis.BACKENDS)
            problems.append(Problem(COMMAND_LINE, "--backend", f"unknown backend {self.backend!r}", hint))
        if self.sweep_id is not None and (reason := folder_name_problem(self.sweep_id)) is not None:
            problems.append(Problem(COMMAND_LINE, "--sweep-id", f"{self.sweep_id!r} {reason}"))
        elif self.sweep_id is not None and slug(self.sweep_id) != self.sweep_id:
            message = f"{self.sweep_id!r} cannot name a folder"
            problems.append(
                Problem(COMMAND_LINE, "--sweep-id", message, f"did you mean {slug(self.sweep_id)!r}?")
            )
        if problems:
            raise ConfigError(problems)


class _Values(BaseModel):
    """The limits of the flags' values."""

    model_config = STRICT
    benchmark: list[Name] | None = None
    model: list[Name] | None = None
    engine: str | None = None
    backend: str | None = None
    agent: str | None = None
    tools: list[str] | None = None
    max_samples: Count | None = None
    max_workers: Count | None = None
    seed: Seed | None = None
    split: Name | None = None
    temperature: NonNegative | None = None
    max_tokens: Count | None = None
    judge_model: Name | None = None
    judge_engine: str | None = None
    judge_base_url: HttpAddress | None = None
    data: Name | None = None
    base_url: HttpAddress | None = None
    output_dir: Name | None = None
    output: Name | None = None
    sweep_id: str | None = None
    address: Name | None = None
    tracking_uri: TrackingFlag | None = None
    tracking_enabled: bool | None = None
    max_cost_usd: Annotated[float, Field(gt=0)] | None = None
    max_tokens_total: Annotated[int, Field(ge=1, lt=2**63)] | None = None
    telemetry: bool | None = None
    gpu_metrics: bool | None = None
    prometheus_port: Port | None = None


def _by_flag(problem: Problem) -> Problem:
    name, bracket, rest = problem.key.partition("[")
    return Problem(
        problem.source, f"--{name.replace('_', '-')}{bracket}{rest}", problem.message, problem.hint
    )
