"""What MLflow is told about a run and a sweep: names and values, nothing of MLflow itself.

MLflow's table orders columns by name and shows the first few, so the names put the accuracy and
its interval first, then the errors; the rest is grouped by what it measures.  Some sixty metrics a run: a
page with thousands does not open.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from evalray.reports import ReportedRun, SweepReport
from evalray.reports import table as tables
from evalray.reports.escape import markdown
from evalray.reports.render_markdown import render_table
from evalray.tracking.redact import redact, redact_text
from evalray.types import MetricStats, Outcome, RunSummary

#: Subjects logged as metrics; a benchmark with more has them in its description and artifacts.
MAX_SUBJECT_METRICS = 20
MAX_NOTE = 7500

#: What a ``<name>_stats`` field is called, and which of its figures are worth a column.
_STATS_NAMES = {
    "latency": "latency_seconds",
    "ttft": "ttft_seconds",
    "itl": "itl_ms",
    "queue": "queue_seconds",
    "energy": "energy_joules",
    "power": "power_watts",
    "gpu_utilization": "gpu_utilization_pct",
    "throughput": "throughput/request_tokens_per_second",
    "mfu": "mfu_pct",
    "mbu": "mbu_pct",
    "input_token": "tokens/input_per_sample",
    "output_token": "tokens/output_per_sample",
}
_TAIL_MATTERS = frozenset({"latency", "ttft", "itl"})
#: Told by other metrics already.
_NOT_LOGGED_STATS = frozenset({"accuracy"})


def run_metrics(summary: RunSummary) -> dict[str, float | int | None]:
    """The run's summary figures; ``None`` ones are not to be logged."""
    low, high = summary.accuracy_ci95 or (None, None)
    metrics: dict[str, float | int | None] = {
        "accuracy": summary.accuracy,
        "accuracy_ci95_low": low,
        "accuracy_ci95_high": high,
        "errors": summary.errors,
        "score/accuracy_stderr": summary.accuracy_stderr,
        "score/accuracy_parsed": summary.accuracy_parsed,
        "score/accuracy_completed": summary.accuracy_completed,
        "score/truncated_rate": summary.truncated_rate,
        "samples/planned": summary.planned_samples,
        "samples/scored": summary.scored_samples,
        "samples/correct": summary.correct,
        "samples/bad_rows": summary.bad_rows,
        **_totals(summary),
        "throughput/samples_per_second": summary.samples_per_second,
        "throughput/output_tokens_per_second": summary.output_tokens_per_second,
        "energy/idle_joules": summary.idle_joules,
        "energy/device_joules": summary.device_joules,
        "energy/invalid_seconds": summary.energy_invalid_seconds,
        "energy/joules_per_correct": summary.joules_per_correct,
        "energy/tokens_per_joule": summary.tokens_per_joule,
        "energy/accuracy_per_watt": summary.accuracy_per_watt,
        "energy/avg_power_watts": summary.avg_power_watts,
        "energy/peak_power_watts": summary.peak_power_watts,
        "energy/steady_state_joules_per_token": summary.steady_state_joules_per_token,
        "utilization/mfu_pct": summary.mfu_pct,
        "utilization/mbu_pct": summary.mbu_pct,
    }
    metrics |= {f"outcomes/{o}": summary.outcomes.get(o, 0) for o in Outcome}
    metrics |= {f"score/pass_at_{str(k).removeprefix('pass@')}": v for k, v in summary.pass_at_k.items()}
    metrics |= {f"score/{name}": rate for name, rate in summary.scorer_rates.items()}
    for field in fields(summary):
        kind = field.name.removesuffix("_stats")
        stats = getattr(summary, field.name)
        if isinstance(stats, MetricStats) and kind not in _NOT_LOGGED_STATS:
            metrics |= _stats_metrics(kind, stats)
    if 1 < len(summary.per_subject) <= MAX_SUBJECT_METRICS:
        metrics |= {f"subject/{s or 'none'}": f.get("accuracy") for s, f in summary.per_subject.items()}
    return metrics


def sweep_metrics(report: SweepReport) -> dict[str, float | int | None]:
    """The sweep's own totals, so that the parent run has figures of its own in the table."""
    summaries = [run.summary for run in report.runs]
    accuracies = [s.accuracy for s in summaries if s.accuracy is not None and math.isfinite(s.accuracy)]
    summed = {
        key: _sum([_totals(s)[key] for s in summaries])
        for key in (_totals(summaries[0]) if summaries else ())
    }
    return {
        "errors": sum(s.errors for s in summaries),
        "samples/planned": sum(s.planned_samples for s in summaries),
        "samples/scored": sum(s.scored_samples for s in summaries),
        "samples/correct": sum(s.correct for s in summaries),
        **summed,
        "sweep/best_accuracy": max(accuracies, default=None),
        "sweep/runs": len(summaries) + len(report.unfinished),
        "sweep/runs_complete": sum(s.status == "complete" for s in summaries),
    }


def flat_params(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """A configuration as dotted names and texts; unset values are left out, secrets replaced."""
    flat: dict[str, str] = {}
    for key, value in redact(config).items():
        name = f"{prefix}{key}"
        if value is None or value == "" or value == [] or value == {}:
            continue
        if isinstance(value, Mapping):
            flat |= flat_params(value, f"{name}.")
        elif isinstance(value, str):
            flat[name] = value
        else:
            flat[name] = json.dumps(value, ensure_ascii=False, default=str)
    return flat


def run_note(run: ReportedRun) -> str:
    """The description of a child run: the headline, the outcomes, the figures, the warnings."""
    s = run.summary
    headline = f"**{tables.accuracy_text(s)}** on {tables.scored_text(s)} samples (95 % interval)"
    parts = [
        f"{markdown(s.model, 200)} on {markdown(s.benchmark, 200)}: {headline}",
        render_table(tables.outcomes([run])),
        render_table(tables.performance([run])),
    ]
    if notes := tables.device_notes(s):
        parts.append("\n".join(f"- {markdown(redact_text(text), 300)}" for text in notes))
    if lines := tables.run_warnings(s):
        parts.append("\n".join(f"- {markdown(redact_text(text), 300)}" for text in lines[:10]))
    if tables.has_subjects(s):
        parts.append(render_table(tables.subjects(s)))
    return _fitting(parts)


def sweep_note(report: SweepReport) -> str:
    """The description of the parent run: model × benchmark, then what went wrong."""
    parts = [markdown(redact_text(report.description), 1000)] if report.description else []
    if report.runs:
        parts.append("Accuracy with its 95 % interval; n = scored/planned.")
        parts.append(render_table(tables.matrix(report)))
    if lines := tables.warnings(report):
        parts.append("\n".join(f"- {markdown(redact_text(line), 300)}" for line in lines[:20]))
    return _fitting(parts) or "No run of this sweep has a summary yet."


def _totals(summary: RunSummary) -> dict[str, float | int | None]:
    """Figures that add up over runs."""
    return {
        "tokens/input": summary.total_input_tokens,
        "tokens/output": summary.total_output_tokens,
        "total_cost_usd": summary.total_cost_usd,
        "total_energy_joules": summary.total_energy_joules,
        "energy/gco2e": summary.gco2e,
        "wall_seconds": summary.wall_seconds,
    }


def _sum(values: list[float | int | None]) -> float | None:
    """The sum of what was measured; ``None`` where nothing was."""
    measured = [value for value in values if value is not None]
    return sum(measured) if measured else None


def _stats_metrics(kind: str, stats: MetricStats) -> dict[str, float | int | None]:
    name = _STATS_NAMES.get(kind, kind)
    if kind not in _TAIL_MATTERS:
        return {f"{name}/mean" if "/" not in name else f"{name}_mean": stats.mean}
    return {
        f"{name}/mean": stats.mean,
        f"{name}/p50": stats.median,
        f"{name}/p90": stats.p90,
        f"{name}/p95": stats.p95,
        f"{name}/p99": stats.p99,
    }


def _fitting(parts: list[str]) -> str:
    """The parts as paragraphs, cut at a line so that no table row is torn."""
    text = "\n\n".join(part for part in parts if part)
    if len(text) <= MAX_NOTE:
        return text
    kept = text[:MAX_NOTE].rsplit("\n", 1)[0]
    return f"{kept}\n\nThe rest is in the artifacts (report.md, summary.json)."
