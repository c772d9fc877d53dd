"""One model on one benchmark from Python, any part of which may be an object of the caller's own.

The parts are OpenJarvis's: a configuration, a data set, a backend, a scorer.  What comes out is a
plan like any other, so that such a run is journaled, resumed, judged and reported in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from evalray.backend import InferenceBackend
from evalray.datasets import DatasetProvider
from evalray.definition import Benchmark
from evalray.deployments import Deployment, PlannedRun, deploy_runs, withhold_keys
from evalray.engines.base import EngineConfig
from evalray.errors import ConfigError, Problem
from evalray.plan import Plan
from evalray.plan_judges import JudgeFinder, assign_judge
from evalray.scorers import Scorer
from evalray.suite import ModelEntry, Overrides, Registry, slug
from evalray.suite.engine_choice import choose_engine
from evalray.suite.models import Judge, Telemetry
from evalray.types import RunConfig
from evalray.validation import nearest_hint, problems_of

#: OpenJarvis's requests at once for a backend of one's own.
_MAX_WORKERS = 4
_HOST = "evalray.engines.backend_engine:BackendEngine"


def plan_benchmark(
    config: RunConfig,
    dataset: DatasetProvider | None = None,
    backend: InferenceBackend | type[InferenceBackend] | str | None = None,
    scorer: Scorer | str | None = None,
    *,
    judge: Mapping[str, Any] | None = None,
    overrides: Overrides | None = None,
) -> Plan:
    """The plan of one run.  ``judge`` is what a suite's ``[judge]`` would say.

    Of ``overrides`` those about the place of results, tracking, the cluster, ``base_url`` and the
    judge count; all else is in ``config``.  Raises :class:`ConfigError`.
    """
    overrides, registry = overrides or Overrides(), Registry.installed()
    overrides.check(registry)
    benchmark = _benchmark(config, dataset, registry)
    section = _judge(judge or {})
    config = replace(
        config,
        judge_model=overrides.judge_model or config.judge_model or section.model,
        scorer=scorer if isinstance(scorer, str) else config.scorer or benchmark.scorer,
    )
    if isinstance(scorer, Scorer):
        config.scorer = f"{type(scorer).__module__}:{type(scorer).__qualname__}"
    elif not config.scorer_args and config.scorer == benchmark.scorer:
        config.scorer_args = dict(benchmark.scorer_args)
    if dataset is None and config.data is None:
        config.dataset_split = config.dataset_split or benchmark.split
        config.dataset_subset = config.dataset_subset or benchmark.subset
    own_scorer = scorer if isinstance(scorer, Scorer) else None
    run = PlannedRun(config, benchmark, provider=dataset, scorer=own_scorer)
    entry = ModelEntry(name=config.model, engine=config.engine_key, base_url=overrides.base_url)
    joins = overrides.address is not None
    if backend is None:
        deployment = _on_engine(entry, run, registry, joins_cluster=joins)
    else:
        deployment = _on_backend(backend, run)
    finder = JudgeFinder(
        section,
        [],
        registry,
        Path.cwd(),
        joins,
        overrides.judge_engine,
        overrides.judge_base_url,
    )
    assign_judge(run, finder)
    withhold_keys([deployment, *(found.deployment for found in finder.found)])
    name = slug(f"{config.benchmark}_{config.model}")
    enabled = overrides.tracking_enabled
    return Plan(
        name=name,
        description="",
        sweep_id=overrides.sweep_id or name,
        directory=Path(overrides.output_dir or "results").expanduser() / (overrides.sweep_id or name),
        suite={
            "meta": {"name": name},
            "judge": section.model_dump(exclude_unset=True),
            "runs": [asdict(config)],
        },
        deployments=[deployment],
        judges=finder.found,
        address=overrides.address,
        tracking_uri=overrides.tracking_uri,
        tracking_enabled=overrides.tracking_uri is not None if enabled is None else enabled,
        experiment=name,
        copy_results_to=Path(config.output_path).expanduser() if config.output_path else None,
        telemetry=Telemetry(prometheus_port=overrides.prometheus_port),
    )


def _benchmark(config: RunConfig, dataset: DatasetProvider | None, registry: Registry) -> Benchmark:
    listing = registry.benchmarks.get(config.benchmark)
    if listing is not None and listing.benchmark is not None:
        return replace(listing.benchmark, streaming=False) if dataset is not None else listing.benchmark
    if dataset is not None:
        return Benchmark(config.benchmark, Path.cwd(), category="", scorer="")
    problems = list(listing.problems) if listing is not None else []
    hint = nearest_hint(config.benchmark, registry.benchmarks)
    message = f"unknown benchmark {config.benchmark!r}"
    raise ConfigError(problems or [Problem("config", "benchmark", message, hint or "or give a dataset")])


def _judge(table: Mapping[str, Any]) -> Judge:
    try:
        return Judge.model_validate(dict(table))
    except ValidationError as error:
        raise ConfigError(list(problems_of(error, "judge", root=Judge))) from None


def _on_engine(entry: ModelEntry, run: PlannedRun, registry: Registry, *, joins_cluster: bool) -> Deployment:
    choice = choose_engine(entry, registry, Path.cwd())
    if choice.unsupported:
        raise ConfigError([Problem("config", "engine_key", choice.unsupported)])
    run.config.engine_key = choice.name
    return deploy_runs(entry, choice, [run], joins_cluster=joins_cluster)


def _on_backend(backend: InferenceBackend | type[InferenceBackend] | str, run: PlannedRun) -> Deployment:
    in_flight = run.config.max_workers or _MAX_WORKERS
    if isinstance(backend, str):
        name, arguments, payload = backend, {}, None
    else:
        from evalray.runtime.payload import pickled

        built = backend() if isinstance(backend, type) else backend
        kind = type(built)
        name, payload = _HOST, pickled(built)
        # Which backend it was is part of the run's identity; the object itself is not.
        arguments = {"backend": f"{kind.__module__}:{kind.__qualname__}"}
    run.config.engine_key = name
    config = EngineConfig(
        run.config.model,
        name,
        max_concurrency=in_flight,
        max_retries=0,
        engine_args=arguments,
        payload=payload,
    )
    return Deployment(run.config.model, config, cpus_per_replica=0.25, in_flight=in_flight, runs=[run])
