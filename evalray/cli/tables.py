"""What commands show when they end: tables for a terminal of 80 columns or more, and for a file.

All text that comes from models, servers or files passes through ``safe_line``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from evalray.cli.text import bounds, count, duration, percent, rate, safe_line
from evalray.doctor import Check
from evalray.plan import Deployment, JudgeDeployment, Plan, PlannedRun, judge_to_dict
from evalray.reports.table import run_warnings
from evalray.types import RunConfig, RunSummary
from evalray.wording import counted

if TYPE_CHECKING:
    from evalray.runtime.result import RunOutcome

_STATUS_STYLE = {
    "complete": "green",
    "partial": "yellow",
    "failed": "red",
    "skipped": "dim",
    "unsupported": "dim",
}
#: Unparsed, truncated and errors share a column: apart they would not fit 80 cells.
_RESULT_COLUMNS = (
    ("accuracy 95 %", 17),
    ("scored", 14),
    ("unp/trunc/err", 14),
    ("tok/s", 6),
    ("p50 s", 6),
    ("wall", 9),
)
_MAX_NAMES = 8
_CHECK_MARK = {"ok": ("✓", "green"), "note": ("•", "yellow"), "problem": ("✗", "bold red")}


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False, header_style="bold")


def results_lines(runs: Sequence[RunOutcome], width: int) -> list[Text]:
    """Model by model, a line per benchmark: accuracy with its 95 % interval, and what it is made of.

    Fits ``width`` cells from 80 on.
    """
    names = run_names(runs)
    room = max(14, width - sum(size for _, size in _RESULT_COLUMNS))
    name_width = min(room, max((cell_len("".join(name)) for name in names), default=0) + 2)
    header = "".join(f"{title:>{size}}" for title, size in _RESULT_COLUMNS)
    lines = [Text(" " * name_width + header, "dim")]
    for model in dict.fromkeys(run.model for run in runs):
        heading = Text(safe_line(model, 200), "bold")
        heading.truncate(width, overflow="ellipsis")
        lines.append(heading)
        for run, (benchmark, tag) in zip(runs, names, strict=True):
            if run.model == model:
                name = Text(f"  {benchmark}")
                name.truncate(name_width - cell_len(tag), overflow="ellipsis", pad=not tag)
                name.append(tag)
                name.pad_right(name_width - cell_len(name.plain))
                lines.append(name + _result_cells(run))
                if run.summary is not None and run.summary.pass_at_k:
                    lines.append(Text(f"    {_pass_at_k(run.summary)}", "dim"))
    return lines


def rate_lines(runs: Sequence[RunOutcome]) -> list[Text]:
    """What a run's scorer says beside the accuracy, such as how often a judge's verdict hung on the order."""
    lines: list[Text] = []
    for run in runs:
        rates = run.summary.scorer_rates.items() if run.summary is not None else ()
        known = [f"{name.replace('_', ' ')} {rate:.1%}" for name, rate in rates if rate is not None]
        if known:
            name = _cell_name(run)
            lines.append(Text(f"  {name}: {safe_line(', '.join(known), 500)}"))
    return lines


def energy_lines(runs: Sequence[RunOutcome]) -> list[Text]:
    """Energy and utilisation of each run where measured, and once why not where they are not."""
    lines: list[Text] = []
    reasons: dict[str, None] = {}
    for run in runs:
        summary = run.summary
        if summary is None or summary.energy_method is None:
            continue
        found = list(_device_figures(summary))
        if found:
            name = _cell_name(run)
            lines.append(Text(f"  {name}: {', '.join(found)}"))
        if summary.total_energy_joules is None:
            why = summary.energy_reason or "no request was in a measured stretch"
            head = "no energy meter here" if summary.energy_method == "none" else "energy was not measured"
            reasons[f"  {head} (null, not 0): {safe_line(why, 500)}"] = None
        if summary.utilization_reason:
            reasons[f"  {safe_line(summary.utilization_reason, 500)}"] = None
        elif summary.utilization_peak:
            reasons[f"  MFU and MBU are of {safe_line(summary.utilization_peak, 300)}"] = None
    return [*lines, *(Text(reason, "dim") for reason in reasons)]


def _device_figures(summary: RunSummary) -> Iterable[str]:
    if summary.total_energy_joules is not None:
        each = summary.energy_stats.mean if summary.energy_stats else None
        if each is not None:
            yield f"{each:.3g} J/sample"
        if summary.tokens_per_joule is not None:
            yield f"{summary.tokens_per_joule:.3g} tok/J"
        yield f"{summary.total_energy_joules:.4g} J"
        if summary.idle_joules is not None:
            yield f"{summary.idle_joules:.4g} J idle"
    if summary.gco2e is not None:
        yield f"{summary.gco2e:.3g} gCO2e"
    if summary.mfu_pct is not None:
        yield f"MFU {summary.mfu_pct:.3g} %"
    if summary.mbu_pct is not None:
        yield f"MBU {summary.mbu_pct:.3g} %"


def _result_cells(run: RunOutcome) -> Text:
    style = _STATUS_STYLE[run.status]
    if run.summary is None:
        return Text(f"  {run.status}", style)
    cells = zip(_figures(run.summary), _RESULT_COLUMNS, strict=True)
    text = "".join(f"{cell:>{size}}" for cell, (_, size) in cells)
    return Text(text, "" if run.status == "complete" else style)


def _pass_at_k(summary: RunSummary) -> str:
    numbers = {int(k.removeprefix("pass@")): value for k, value in summary.pass_at_k.items()}
    return "  ".join(f"pass@{k} {percent(value)}" for k, value in sorted(numbers.items()))


def _figures(summary: RunSummary) -> Iterable[str]:
    outcomes = summary.outcomes
    accuracy = percent(summary.accuracy)
    if summary.accuracy_ci95 is not None:
        accuracy += f" {bounds(*summary.accuracy_ci95)}"
    yield accuracy
    yield f"{count(summary.scored_samples)}/{count(summary.planned_samples)}"
    errors = sum(outcomes.get(name, 0) for name in ("engine_error", "judge_error", "scorer_error"))
    yield f"{outcomes.get('unparsed', 0)}/{outcomes.get('truncated', 0)}/{errors}"
    yield rate(summary.output_tokens_per_second)
    yield rate(summary.latency_stats.median if summary.latency_stats else None)
    yield duration(summary.wall_seconds)


def reasons(runs: Sequence[RunOutcome]) -> list[Text]:
    """Why runs are not complete, and the warnings of every run: each reason once, with the runs it is of."""
    whose: dict[tuple[str, str], list[str]] = {}
    for run, name in zip(runs, run_names(runs), strict=True):
        full = f"{''.join(name)} · {safe_line(run.model, 200)}"
        if run.status != "complete":
            whose.setdefault((run.status, safe_line(run.reason, 1_000)), []).append(full)
        for warning in run_warnings(run.summary) if run.summary is not None else ():
            whose.setdefault(("", safe_line(warning, 1_000)), []).append(full)
    lines = []
    for (status, reason), names in whose.items():
        what = ": ".join(filter(None, (status, reason)))
        style = _STATUS_STYLE.get(status, "yellow")
        if len(names) == 1:
            lines.append(Text(f"{names[0]}: {what}", style))
            continue
        more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        lines.append(Text(f"{len(names)} runs: {what}", style))
        lines.append(Text(f"  {', '.join(names[:_MAX_NAMES])}{more}", "dim"))
    return lines


def run_names(runs: Sequence[RunOutcome]) -> list[tuple[str, str]]:
    """Each run's benchmark, and a tag (`` #1a2b``) where another run has the same benchmark and model.

    The tag is the beginning of the run's fingerprint, as the names of folders and reports show it.
    """
    cells = Counter((run.benchmark, run.model) for run in runs)
    names = []
    for run in runs:
        fingerprint = run.summary.fingerprint if run.summary is not None else ""
        twice = cells[run.benchmark, run.model] > 1
        names.append((safe_line(run.benchmark, 100), f" #{fingerprint[:4]}" if twice and fingerprint else ""))
    return names


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
    if plan.skipped:
        lines.append(Text(f"\nskipped: {len(plan.skipped)}", "bold yellow"))
        lines += _skipped_lines(plan.skipped)
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


def _skipped_lines(cells: Sequence[PlannedRun]) -> list[Text]:
    """Cells by the reason they share: OpenJarvis's suites have many, for few reasons."""
    by_reason: dict[str, list[str]] = {}
    for cell in cells:
        by_reason.setdefault(cell.reason, []).append(_cell_name(cell.config))
    lines = []
    for reason, names in by_reason.items():
        lines.append(Text(f"  {safe_line(reason, 500)}", "yellow"))
        lines += [Text(f"    {name}", "dim") for name in names]
    return lines


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


def _cell_name(run: RunConfig | RunOutcome) -> str:
    return f"{safe_line(run.benchmark, 100)} · {safe_line(run.model, 200)}"


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
        lines += [Text(f"      ! {safe_line(note, 500)}", "yellow") for note in run.notes]
    return lines


def doctor_table(checks: Sequence[Check]) -> Table:
    """Each check with its mark, and below a gap what to do about it."""
    table = Table(box=None, padding=(0, 1), pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    group = ""
    for check in checks:
        if check.group != group:
            group = check.group
            table.add_row("", Text(group, "bold"), "")
        mark, style = _CHECK_MARK[check.status]
        detail = Text(safe_line(check.detail, 500))
        if check.advice:
            detail.append(f"\n→ {safe_line(check.advice, 500)}", style)
        table.add_row(Text(mark, style), Text(check.name), detail)
    return table


def names_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A list of things with a name and a few facts each."""
    table = _table()
    for header in headers:
        table.add_column(header, overflow="fold")
    for row in rows:
        table.add_row(*(Text(safe_line(cell, 300)) for cell in row))
    return table
