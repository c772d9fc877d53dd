"""What would run where: a suite's matrix grouped into deployments.

Pure: reads no network, starts nothing, imports neither Ray nor an SDK.  ``evalray plan`` shows it,
``evalray run`` executes it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from evalray.deployments import (
    Deployment,
    JudgeDeployment,
    PlannedRun,
    deploy_runs,
    engine_to_dict,
    withhold_keys,
)
from evalray.errors import ConfigError, Problem
from evalray.plan_judges import assign_judges
from evalray.plan_limits import cache_directory, cost_warnings
from evalray.plan_notes import cell_notes
from evalray.settings import scheme_problem, without_url_secret
from evalray.suite.cell import Cell
from evalray.suite.engine_choice import located
from evalray.suite.expand import expand, suite_name
from evalray.suite.models import Suite, Telemetry
from evalray.suite.names import folder_name_problem, slug
from evalray.suite.overrides import COMMAND_LINE, Overrides
from evalray.suite.registry import Registry

__all__ = [
    "Deployment",
    "JudgeDeployment",
    "Plan",
    "PlannedRun",
    "judge_to_dict",
    "make_plan",
    "plan_to_dict",
]

_JUDGE_FLAGS = ("judge_model", "judge_engine", "judge_base_url")


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
    judges: list[JudgeDeployment] = field(default_factory=list)
    """One per judge that a run may ask."""
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
    max_cost_usd: float | None = None
    """Dollars after which nothing more is sent, judges and earlier processes of the sweep included."""
    max_tokens_total: int | None = None
    """Tokens of prompts and answers after which nothing more is sent."""
    cache_directory: Path | None = None
    """Where the response cache is; ``None`` is off."""
    telemetry: Telemetry = field(default_factory=Telemetry)
    """How energy is measured and shown; each run says whether it is."""
    stored_only: bool = False
    """The runs are there already: only their verdicts are given anew, and ``sweep.json`` stays as it is."""

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
            deployments.append(
                deploy_runs(group[0].model, group[0].engine, ready, joins_cluster=address is not None)
            )
    judges = assign_judges(suite, overrides, registry, deployments, joins_cluster=address is not None)
    warnings = list(suite.warnings)
    if deployments and not judges:
        unused = [f"--{key.replace('_', '-')}" for key in overrides.given(*_JUDGE_FLAGS)]
        warnings += [f"{', '.join(unused)}: not used, as nothing selected asks a judge"] if unused else []
    withhold_keys([*deployments, *(judge.deployment for judge in judges)])
    sweep_id = overrides.sweep_id or _folder_name(name)
    tracking_uri = (
        overrides.tracking_uri or suite.tracking.uri or os.environ.get("MLFLOW_TRACKING_URI") or None
    )
    enabled = suite.tracking.enabled if overrides.tracking_enabled is None else overrides.tracking_enabled
    if enabled and tracking_uri and (problem := scheme_problem(tracking_uri)) is not None:
        raise ConfigError([Problem("MLFLOW_TRACKING_URI", "", problem)])
    plan = Plan(
        name=name,
        description=suite.meta.description,
        sweep_id=sweep_id,
        directory=Path(overrides.output_dir or suite.run.output_dir).expanduser() / sweep_id,
        suite={},
        deployments=deployments,
        skipped=skipped,
        judges=judges,
        warnings=warnings,
        address=address,
        placement_timeout_seconds=float(suite.cluster.placement_timeout_seconds),
        tracking_uri=tracking_uri,
        tracking_enabled=enabled,
        experiment=suite.tracking.experiment or name,
        copy_results_to=Path(overrides.output).expanduser() if overrides.output else None,
        max_cost_usd=overrides.max_cost_usd or suite.run.max_cost_usd,
        max_tokens_total=overrides.max_tokens_total or suite.run.max_tokens_total,
        telemetry=suite.telemetry.model_copy(update=overrides.given("prometheus_port")),
    )
    plan.cache_directory = cache_directory(suite.run.cache, plan.directory.parent)
    plan.warnings += cost_warnings(
        plan.max_cost_usd, [d.engine_config for d in (*deployments, *(j.deployment for j in judges))]
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


def _resolved_suite(suite: Suite, plan: Plan, cells: Sequence[Cell]) -> dict[str, Any]:
    """The suite as ``sweep.json`` keeps it: what the file says, and every run with all values merged.

    Plain data, and no secret: keys are refused in files, and an address loses its password here.
    """
    written = suite.fields_given()
    written["meta"] = {"name": plan.name, "description": plan.description}
    written["run"] = suite.run.model_dump() | {"output_dir": str(plan.directory.parent)}
    written["telemetry"] = plan.telemetry.model_dump()
    written["cluster"] = suite.cluster.model_dump() | {"address": plan.address}
    if suite.judge.path is not None:
        written["judge"]["path"] = located(suite.judge.path, suite.folder)
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
        "max_cost_usd": plan.max_cost_usd,
        "max_tokens_total": plan.max_tokens_total,
        "telemetry": plan.telemetry.model_dump(),
        "cache_directory": str(plan.cache_directory.absolute()) if plan.cache_directory else None,
        "deployments": [
            {**_deployment_to_dict(deployment), "runs": [_run_to_dict(run) for run in deployment.runs]}
            for deployment in plan.deployments
        ],
        "judges": [judge_to_dict(judge, plan) for judge in plan.judges],
        "skipped": [_run_to_dict(run) for run in plan.skipped],
        "gpus_needed": _gpus_needed(plan),
        "warnings": list(plan.warnings),
    }


def _gpus_needed(plan: Plan) -> int:
    """GPUs for the largest deployment and all judges; parts of a GPU may share one."""
    most = max((d.gpus_per_replica * d.replicas for d in plan.deployments), default=0.0)
    judges = sum(j.deployment.gpus_per_replica * j.deployment.replicas for j in plan.judges)
    return math.ceil(most + judges - 1e-9)


def _deployment_to_dict(deployment: Deployment) -> dict[str, Any]:
    return {
        "model": deployment.model,
        "engine": engine_to_dict(deployment.engine_config),
        "replicas": deployment.replicas,
        "gpus_per_replica": deployment.gpus_per_replica,
        "may_span_nodes": deployment.may_span_nodes,
        "cpus_per_replica": deployment.cpus_per_replica,
        "in_flight": deployment.expected_in_flight,
        "exclusive": deployment.exclusive,
    }


def judge_to_dict(judge: JudgeDeployment, plan: Plan) -> dict[str, Any]:
    """A judge as plain data, with the runs that ask it."""
    return {
        **_deployment_to_dict(judge.deployment),
        "temperature": judge.temperature,
        "max_tokens": judge.max_tokens,
        "notes": list(judge.notes),
        "problem": judge.problem,
        "judges": [
            {"benchmark": run.config.benchmark, "model": run.config.model}
            for run in plan.runs
            if run.judge is judge
        ],
    }


def _run_to_dict(run: PlannedRun) -> dict[str, Any]:
    return {
        "benchmark": run.config.benchmark,
        "model": run.config.model,
        "status": run.status,
        "reason": run.reason,
        "judge": run.judge.model if run.judge else None,
        "notes": list(run.notes),
        "config": asdict(run.config),
    }
