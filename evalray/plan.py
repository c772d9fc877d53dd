"""What would run where: a suite's matrix grouped into deployments.

Pure: reads no network, starts nothing, imports neither Ray nor an SDK.  ``evalray plan`` shows it,
``evalray run`` executes it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from evalray.benchmarks import Benchmark
from evalray.engines.base import EngineConfig
from evalray.errors import ConfigError, Problem
from evalray.plan_notes import cell_notes, deployment_notes
from evalray.settings import without_url_secret
from evalray.suite.engine_choice import (
    KEY_VARIABLES,
    computes_on_cpu,
    gpus_per_replica,
    is_over_network,
    takes_stream,
)
from evalray.suite.expand import Cell, expand, suite_name
from evalray.suite.models import ModelEntry, Suite
from evalray.suite.names import folder_name_problem, slug
from evalray.suite.overrides import COMMAND_LINE, Overrides
from evalray.suite.registry import Registry
from evalray.types import RunConfig

#: Tokens allowed for a prompt where neither the suite nor its examples say more.
PROMPT_ALLOWANCE_TOKENS = 2048
#: Text takes at least about one token for so many characters, in the languages we meet.
_CHARACTERS_PER_TOKEN = 3
#: CPUs a replica books that only passes requests on.
_NETWORK_CPUS = 0.25
#: Keys of ``engine_args`` that give the context of one request; the first is ours, for any engine.
_CONTEXT_KEY = "context_tokens"
_CONTEXT_KEYS = (_CONTEXT_KEY, "max_model_len")

CellStatus = Literal["ready", "unsupported"]


@dataclass(slots=True)
class PlannedRun:
    """One cell of the matrix.  ``unsupported`` cells are skipped and reported; ``reason`` says why.

    ``notes`` are gaps that are shown by ``plan`` and may stop the cell at run time: a missing
    file, key, token or GPU.
    """

    config: RunConfig
    benchmark: Benchmark | None
    status: CellStatus = "ready"
    reason: str = ""
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Deployment:
    """One model with its engine settings, on ``replicas`` engine actors; serves all its runs."""

    model: str
    engine_config: EngineConfig
    replicas: int = 1
    gpus_per_replica: int = 0
    cpus_per_replica: float = 1.0
    in_flight: int | None = None
    """Requests per replica; ``None`` takes what the started engine reports."""
    exclusive: bool = False
    """Computes on this machine's CPU cores: not run beside another such deployment."""
    runs: list[PlannedRun] = field(default_factory=list)


@dataclass(slots=True)
class Plan:
    """A resolved sweep.  ``suite`` is the merged configuration as it is stored in ``sweep.json``."""

    name: str
    description: str
    sweep_id: str
    directory: Path
    suite: dict[str, Any]
    deployments: list[Deployment] = field(default_factory=list)
    skipped: list[PlannedRun] = field(default_factory=list)
    """Cells that cannot run, in the order of the suite."""
    warnings: list[str] = field(default_factory=list)
    address: str | None = None
    """Ray address; ``None`` starts a local Ray."""
    placement_timeout_seconds: float = 120.0
    tracking_uri: str | None = None
    """``None`` is the default store beside the results."""
    tracking_enabled: bool = True
    experiment: str = ""
    copy_results_to: Path | None = None
    """``-o``: where a single run's rows are also written."""

    @property
    def runs(self) -> list[PlannedRun]:
        return [run for deployment in self.deployments for run in deployment.runs]


def make_plan(
    suite: Suite,
    overrides: Overrides | None = None,
    *,
    source: Path | None = None,
    registry: Registry | None = None,
) -> Plan:
    """Resolve a suite: merge its layers, choose engines, group its cells into deployments.

    ``source`` is the suite's file where it is not the one it was loaded from.  Raises
    :class:`ConfigError` for a flag or a selection that is impossible; what is merely missing here --
    a file, key, token, GPU, engine or benchmark -- becomes a note or an ``unsupported`` cell.
    """
    overrides = overrides or Overrides()
    registry = registry or Registry.installed()
    if source is not None:
        suite = suite.model_copy()
        suite._source = source
    cells = expand(suite, overrides, registry)
    if overrides.output is not None and len(cells) != 1:
        message = f"writes the rows of one run, and {len(cells)} are selected"
        hint = "use --output-dir, or select one with -b and -m"
        raise ConfigError([Problem(COMMAND_LINE, "--output", message, hint)])
    name = suite_name(suite)
    address = overrides.address or suite.cluster.address or os.environ.get("RAY_ADDRESS") or None
    if address == "local":  # Ray's own word for starting one here
        address = None
    deployments, skipped = [], []
    for _, of_model in groupby(cells, key=lambda cell: cell.model_index):
        group = list(of_model)
        runs = [_planned(cell) for cell in group]
        skipped += [run for run in runs if run.status == "unsupported"]
        ready = [run for run in runs if run.status == "ready"]
        if ready:
            deployments.append(_deployment(group[0], ready, joins_cluster=address is not None))
    sweep_id = overrides.sweep_id or _folder_name(name)
    tracking_uri = (
        overrides.tracking_uri or suite.tracking.uri or os.environ.get("MLFLOW_TRACKING_URI") or None
    )
    enabled = suite.tracking.enabled if overrides.tracking_enabled is None else overrides.tracking_enabled
    plan = Plan(
        name=name,
        description=suite.meta.description,
        sweep_id=sweep_id,
        directory=Path(overrides.output_dir or suite.run.output_dir).expanduser() / sweep_id,
        suite={},
        deployments=deployments,
        skipped=skipped,
        warnings=list(suite.warnings),
        address=address,
        placement_timeout_seconds=float(suite.cluster.placement_timeout_seconds),
        tracking_uri=tracking_uri,
        tracking_enabled=enabled,
        experiment=suite.tracking.experiment or name,
        copy_results_to=Path(overrides.output).expanduser() if overrides.output else None,
    )
    plan.suite = _resolved_suite(suite, plan, cells)
    return plan


def _folder_name(name: str) -> str:
    """A suite's name as a folder's; a name made of flags was never checked as a file's was."""
    if (reason := folder_name_problem(name)) is not None:
        raise ConfigError(
            [Problem("meta.name", "", f"{name!r} {reason}: it names the folder of the results")]
        )
    return slug(name)


def _planned(cell: Cell) -> PlannedRun:
    if cell.unsupported:
        reason = "; ".join(cell.unsupported)
        return PlannedRun(cell.config, cell.benchmark, "unsupported", reason, list(cell.notes))
    notes = [*cell.notes, *cell_notes(cell.config, cell.benchmark)]
    return PlannedRun(cell.config, cell.benchmark, "ready", "", notes)


def _deployment(cell: Cell, runs: list[PlannedRun], *, joins_cluster: bool) -> Deployment:
    model, engine = cell.model, cell.engine
    in_flight = model.max_concurrency or cell.config.max_workers
    tensor_parallel_size = model.tensor_parallel_size or model.num_gpus or 1
    engine_args = {key: value for key, value in model.engine_args.items() if key != _CONTEXT_KEY}
    if model.stream is not None and takes_stream(engine.name):
        engine_args["stream"] = model.stream
    config = EngineConfig(
        model=model.name,
        engine=engine.name,
        path=engine.path,
        base_url=model.base_url,
        api_key_env=model.api_key_env or KEY_VARIABLES.get(engine.name),
        max_concurrency=in_flight,
        tensor_parallel_size=tensor_parallel_size,
        timeout_seconds=float(model.timeout_seconds),
        start_timeout_seconds=float(model.start_timeout_seconds),
        context_tokens=_context_tokens(model, runs),
        max_retries=model.max_retries,
        engine_args=engine_args,
    )
    gpus = gpus_per_replica(
        engine.name, tensor_parallel_size, engine_args=engine_args, num_gpus=model.num_gpus
    )
    notes = deployment_notes(config, gpus * model.replicas, joins_cluster=joins_cluster)
    for run in runs:
        run.notes += notes
    return Deployment(
        model=model.name,
        engine_config=config,
        replicas=model.replicas,
        gpus_per_replica=gpus,
        cpus_per_replica=_NETWORK_CPUS if is_over_network(engine.name, engine_args) else 1.0,
        in_flight=in_flight,
        exclusive=computes_on_cpu(engine.name, engine_args, model.num_gpus),
        runs=runs,
    )


def _context_tokens(model: ModelEntry, runs: Sequence[PlannedRun]) -> int:
    """The longest prompt plus answer of any run, unless ``engine_args`` gives the context."""
    for key in _CONTEXT_KEYS:
        given = model.engine_args.get(key)
        if isinstance(given, int) and not isinstance(given, bool) and given > 0:
            return given
    return max(run.config.max_tokens + _prompt_allowance(run) for run in runs)


def _prompt_allowance(run: PlannedRun) -> int:
    """Tokens for a prompt: a fixed share, and what the system prompt and the worked examples take."""
    examples = run.benchmark.fewshot[: run.config.num_fewshot] if run.benchmark else ()
    characters = len(run.config.system_prompt or "") + sum(len(json.dumps(row)) for row in examples)
    return PROMPT_ALLOWANCE_TOKENS + -(-characters // _CHARACTERS_PER_TOKEN)


def _resolved_suite(suite: Suite, plan: Plan, cells: Sequence[Cell]) -> dict[str, Any]:
    """The suite as ``sweep.json`` keeps it: what the file says, and every run with all values merged.

    Plain data, and no secret: keys are refused in files, and an address loses its password here.
    """
    written = suite.fields_given()
    written["meta"] = {"name": plan.name, "description": plan.description}
    written["run"] = suite.run.model_dump() | {"output_dir": str(plan.directory.parent)}
    written["cluster"] = suite.cluster.model_dump() | {"address": plan.address}
    written["tracking"] = {
        "uri": without_url_secret(plan.tracking_uri) if plan.tracking_uri else None,
        "experiment": plan.experiment,
        "enabled": plan.tracking_enabled,
    }
    written["models"] = [
        cell.model.model_dump(exclude_none=True) | {"engine": cell.engine.name, "path": cell.engine.path}
        for cell in {cell.model_index: cell for cell in cells}.values()
    ]
    written["runs"] = [asdict(cell.config) for cell in cells]
    return written


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    """The plan as plain data for ``--json`` and displays: every deployment, run, note and reason."""
    return {
        "name": plan.name,
        "description": plan.description,
        "sweep_id": plan.sweep_id,
        "directory": str(plan.directory.absolute()),
        "address": plan.address,
        "tracking": {
            "enabled": plan.tracking_enabled,
            "uri": without_url_secret(plan.tracking_uri) if plan.tracking_uri else None,
            "experiment": plan.experiment,
        },
        "deployments": [
            {
                "model": deployment.model,
                "engine": asdict(deployment.engine_config),
                "replicas": deployment.replicas,
                "gpus_per_replica": deployment.gpus_per_replica,
                "cpus_per_replica": deployment.cpus_per_replica,
                "in_flight": deployment.in_flight,
                "exclusive": deployment.exclusive,
                "runs": [_run_to_dict(run) for run in deployment.runs],
            }
            for deployment in plan.deployments
        ],
        "skipped": [_run_to_dict(run) for run in plan.skipped],
        "gpus_needed": max((d.gpus_per_replica * d.replicas for d in plan.deployments), default=0),
        "warnings": list(plan.warnings),
    }


def _run_to_dict(run: PlannedRun) -> dict[str, Any]:
    return {
        "benchmark": run.config.benchmark,
        "model": run.config.model,
        "status": run.status,
        "reason": run.reason,
        "notes": list(run.notes),
        "config": asdict(run.config),
    }
