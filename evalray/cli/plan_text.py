"""What ``plan`` shows: every deployment with its runs, the cells that are left out, and each note once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.text import Text

from evalray.cli.tables import MAX_NAMES, cell_name
from evalray.cli.text import safe_line
from evalray.plan import Deployment, JudgeDeployment, Plan, PlannedRun, judge_to_dict
from evalray.wording import counted


def plan_lines(plan: Plan) -> list[Text]:
    """What would run where."""
    lines = [Text(safe_line(plan.name, 200), "bold")]
    if plan.description:
        lines.append(Text(f"  {safe_line(plan.description, 500)}", "dim"))
    lines.append(Text(f"  directory  {plan.directory.absolute()}"))
    lines.append(
        Text(f"  ray        {safe_line(plan.address) if plan.address else 'started on this machine'}")
    )
    tracking = safe_line(plan.tracking_uri) if plan.tracking_uri else "store beside the results"
    lines.append(Text(f"  mlflow     {tracking if plan.tracking_enabled else 'off'}"))
    if settings := ", ".join(_telemetry_settings(plan)):
        lines.append(Text(f"  telemetry  {settings}"))
    for deployment in plan.deployments:
        lines += _deployment_lines(deployment, plan)
    for judge in plan.judges:
        lines += _judge_lines(judge, plan)
    lines += _note_lines(plan.runs)
    if plan.skipped:
        lines.append(Text(f"\nskipped: {len(plan.skipped)}", "bold yellow"))
        reasons = dict.fromkeys(run.reason for run in plan.skipped)
        lines += _by_text(reasons, [*plan.runs, *plan.skipped], lambda run: [run.reason])
    lines += [Text(f"warning: {safe_line(warning, 1_000)}", "yellow") for warning in plan.warnings]
    total = f"{counted(len(plan.runs), 'run')} on {counted(len(plan.deployments), 'deployment')}"
    return [*lines, Text(f"\n{total}", "bold")]


def _telemetry_settings(plan: Plan) -> Iterable[str]:
    """What of ``[telemetry]`` is set."""
    settings = plan.telemetry
    if settings.estimate:
        yield "energy estimated for GPUs that measure none"
    if settings.grid_gco2e_per_kwh is not None:
        yield f"grid at {settings.grid_gco2e_per_kwh:g} gCO2e/kWh"
    if settings.prometheus_port is not None:
        port = f"port {settings.prometheus_port}" if settings.prometheus_port else "any free port"
        yield f"Prometheus at {safe_line(settings.prometheus_host, 300)}, {port}"


def _judge_lines(judge: JudgeDeployment, plan: Plan) -> list[Text]:
    asking = dict.fromkeys(run.config.benchmark for run in plan.runs if run.judge is judge)
    lines = _deployment_lines(judge.deployment, plan)
    lines[0] = Text(f"\njudge {safe_line(judge.model, 200)}", "bold")
    asked = f"temperature {judge.temperature:g}, max_tokens {judge.max_tokens:,}"
    lines.append(Text(f"    asked for {safe_line(', '.join(asking), 300)}: {asked}"))
    return lines


def _note_lines(runs: Sequence[PlannedRun]) -> list[Text]:
    """Every note once, with the runs it is of: most hold for a whole model or benchmark."""
    notes = dict.fromkeys(note for run in runs for note in run.notes)
    lines = _by_text(notes, runs, lambda run: run.notes, mark="! ")
    return [Text("\nnotes", "bold"), *lines] if lines else []


def _by_text(
    texts: Iterable[str],
    runs: Sequence[PlannedRun],
    texts_of: Callable[[PlannedRun], Sequence[str]],
    mark: str = "",
) -> list[Text]:
    lines = []
    for text in texts:
        lines.append(Text(f"  {mark}{safe_line(text, 500)}", "yellow"))
        lines.append(Text(f"    for {whose([run for run in runs if text in texts_of(run)], runs)}", "dim"))
    return lines


def whose(some: Sequence[PlannedRun], runs: Sequence[PlannedRun]) -> str:
    """``some`` of ``runs`` in few words: all, those of whole benchmarks or of whole models, or one by one."""
    if len(some) == len(runs) > 1:
        return f"all {len(runs)} runs"
    for name_of in (_benchmark, _model):
        whole = [name for name, number in Counter(map(name_of, runs)).items() if number > 1]
        names = dict.fromkeys(map(name_of, some))
        several = len({name_of(run) for run in runs}) > 1
        if several and set(names) <= set(whole) and len(some) == sum(name_of(run) in names for run in runs):
            return _listed([safe_line(name, 200) for name in names])
    return _listed([cell_name(run.config) for run in some])


def _benchmark(run: PlannedRun) -> str:
    return run.config.benchmark


def _model(run: PlannedRun) -> str:
    return run.config.model


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(dict.fromkeys(names[:MAX_NAMES])) + more


def plan_fields(plan: Plan) -> dict[str, Any]:
    """The plan as the fields of a JSON object: ``runs`` has every cell, in the order of the plan."""
    return {
        "name": plan.name,
        "address": plan.address,
        "tracking_uri": plan.tracking_uri,
        "telemetry": plan.telemetry.model_dump(),
        "warnings": plan.warnings,
        "judges": [judge_to_dict(judge, plan) for judge in plan.judges],
        "runs": [
            *(_cell_fields(run, deployment) for deployment in plan.deployments for run in deployment.runs),
            *(_cell_fields(run, None) for run in plan.skipped),
        ],
    }


def _cell_fields(run: PlannedRun, deployment: Deployment | None) -> dict[str, Any]:
    config = run.config
    fields: dict[str, Any] = {
        "benchmark": config.benchmark,
        "model": config.model,
        "results": None,
        "summary": None,
        "accuracy": None,
        "outcomes": {},
        "status": run.status,
        "reason": run.reason,
        "notes": run.notes,
        "engine": deployment.engine_config.engine if deployment else config.engine_key,
        "max_samples": config.max_samples,
        "epochs": config.epochs,
        "pass_k": config.pass_k,
        "num_fewshot": config.num_fewshot,
        "temperature": config.temperature,
        "max_tokens": config.max_tokens,
        "seed": config.seed,
    }
    if deployment is not None:
        fields |= {
            "replicas": deployment.replicas,
            "gpus_per_replica": deployment.gpus_per_replica,
            "in_flight": deployment.expected_in_flight,
        }
    return fields


def _deployment_lines(deployment: Deployment, plan: Plan) -> list[Text]:
    config = deployment.engine_config
    replicas = counted(deployment.replicas, "replica")
    each = (
        f"{deployment.gpus_per_replica:g} GPU"
        if deployment.gpus_per_replica
        else f"{deployment.cpus_per_replica:g} CPU"
    )
    if plan.address and deployment.may_span_nodes:
        each += f", over several nodes where none has {deployment.gpus_per_replica}"
    known = deployment.expected_in_flight
    in_flight = f"{known} in flight" if known else "in flight as the engine has room"
    lines = [
        Text(f"\n{safe_line(deployment.model, 200)}", "bold"),
        Text(f"  {safe_line(config.engine, 100)}, {replicas} × {each}, {in_flight}", "cyan"),
    ]
    source = config.path or config.base_url
    if source:
        lines.append(Text(f"  {safe_line(source, 300)}", "dim"))
    for run in deployment.runs:
        settings = run.config
        samples = "all samples" if settings.max_samples is None else counted(settings.max_samples, "sample")
        epochs = f" × {settings.epochs} epochs" if settings.epochs > 1 else ""
        sampling = (
            f"temperature {settings.temperature:g}, max_tokens {settings.max_tokens:,}, seed {settings.seed}"
        )
        more = f", {settings.num_fewshot}-shot" if settings.num_fewshot else ""
        if settings.pass_k:
            more += f", pass@{','.join(map(str, settings.pass_k))}"
        lines.append(Text(f"    {safe_line(settings.benchmark, 100)}: {samples}{epochs}, {sampling}{more}"))
    return lines
