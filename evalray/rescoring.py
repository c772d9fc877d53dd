"""A plan that gives the runs of a sweep directory new verdicts from the generations they have.

Who judged, how the judge is run and whether MLflow is told come from the sweep itself, unless the
caller says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from evalray.deployments import Deployment, PlannedRun
from evalray.engines.base import EngineConfig
from evalray.errors import ConfigError, Problem, StoreError
from evalray.plan import Plan
from evalray.plan_judges import JudgeFinder, assign_judge
from evalray.store import RunEntry, StoredRun, read_sweep, scan_runs, why_no_run
from evalray.store.sweep import SWEEP_NAME
from evalray.suite import ModelEntry, Overrides, Registry
from evalray.suite.models import Judge

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class RescoreOptions:
    """What is to be different.  ``None`` keeps what the sweep says.

    Without a judge and without ``reask``, what a judge replied before is read again.
    """

    judge_model: str | None = None
    judge_engine: str | None = None
    judge_base_url: str | None = None
    scorer: str | None = None
    reask: bool = False
    tracking_enabled: bool | None = None


def plan_rescore(
    directory: Path, only: str | None, options: RescoreOptions, registry: Registry | None = None
) -> Plan:
    """``only`` names one run of the sweep in ``directory``; ``None`` takes all.

    Raises :class:`ConfigError` for a scorer or judge that is not there, :class:`StoreError` for a
    directory that holds no run.
    """
    registry = registry or Registry.installed()
    Overrides(
        judge_model=options.judge_model,
        judge_engine=options.judge_engine,
        judge_base_url=options.judge_base_url,
    ).check(registry)
    runs, damaged = scan_runs(directory)
    entries = [entry for entry in runs if only is None or entry.name == only]
    problems = [problem for name, problem in damaged.items() if only is None or name == only]
    if not entries:
        raise StoreError("; ".join(problems) or f"{directory}: {why_no_run(directory)}")
    sweep = read_sweep(directory) if (directory / SWEEP_NAME).is_file() else {}
    finder = _finder(sweep, options, registry)
    deployments: dict[tuple[str, str], Deployment] = {}
    for entry in entries:
        run = _planned(entry, options, registry)
        assign_judge(run, finder)
        key = (entry.config.model, entry.manifest.engine)
        if key not in deployments:
            deployments[key] = Deployment(key[0], EngineConfig(*key))
        deployments[key].runs.append(run)
    tracking = _table(_table(sweep, "suite"), "tracking")
    enabled = options.tracking_enabled
    return Plan(
        name=str(sweep.get("name") or directory.name),
        description=str(sweep.get("description") or ""),
        sweep_id=directory.name,
        directory=directory,
        suite=_table(sweep, "suite"),
        deployments=list(deployments.values()),
        judges=finder.found,
        warnings=problems,
        tracking_uri=tracking.get("uri"),
        tracking_enabled=tracking.get("enabled") is True if enabled is None else enabled,
        experiment=str(sweep.get("experiment") or directory.name),
        stored_only=True,
    )


def _planned(entry: RunEntry, options: RescoreOptions, registry: Registry) -> PlannedRun:
    config = entry.config
    listing = registry.benchmarks.get(config.benchmark)
    benchmark = listing.benchmark if listing else None
    scorer = options.scorer or config.scorer
    if not registry.has_scorer(scorer) and options.scorer is None and benchmark is not None:
        scorer = benchmark.scorer  # rows of another harness name its own scorers
    if not registry.has_scorer(scorer):
        known = ", ".join(sorted(registry.scorers))
        raise ConfigError(
            [
                Problem(
                    str(entry.directory), "scorer", f"unknown scorer {scorer!r}", f"--scorer, one of {known}"
                )
            ]
        )
    args = config.scorer_args
    if scorer != config.scorer:
        args = benchmark.scorer_args if benchmark is not None and benchmark.scorer == scorer else {}
    judge = options.judge_model or config.judge_model
    named = options.judge_model is not None or options.judge_engine is not None
    same = judge == config.judge_model and options.judge_engine in (None, config.judge_engine)
    config = replace(config, scorer=scorer, scorer_args=dict(args), judge_model=judge)
    if named or options.judge_base_url is not None:
        # Without a word about the judge, whoever was asked last is asked where it was.
        config = replace(config, judge_engine=None, judge_base_url=None)
    stored = StoredRun(entry, reread=same and not options.reask, judge_is_named=named)
    return PlannedRun(config, benchmark, stored=stored)


def _finder(sweep: Mapping[str, Any], options: RescoreOptions, registry: Registry) -> JudgeFinder:
    """The sweep's own ``[judge]`` and ``[[models]]``; what of them cannot be read any more is left out."""
    suite = _table(sweep, "suite")
    models = suite.get("models")
    found = [_read(ModelEntry, entry) for entry in models] if isinstance(models, list) else []
    return JudgeFinder(
        _read(Judge, suite.get("judge")) or Judge(),
        [model for model in found if model is not None],
        registry,
        Path.cwd(),
        joins_cluster=False,
        engine=options.judge_engine,
        base_url=options.judge_base_url,
    )


def _read(model: type[Model], table: Any) -> Model | None:
    try:
        return model.model_validate(table) if isinstance(table, dict) else None
    except ValidationError:
        return None


def _table(parent: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = parent.get(key)
    return found if isinstance(found, dict) else {}
