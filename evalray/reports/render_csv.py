"""``report.csv``: one line a run with every figure of its summary, for spreadsheets and scripts."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import fields, is_dataclass
from typing import Any

from evalray.reports.collect import SweepReport
from evalray.reports.escape import csv_cell
from evalray.types import MetricStats, Outcome, RunSummary

#: Fields that are no single figure of the run; the summary file has them.
_LEFT_OUT = frozenset({"per_subject", "warnings"})
_STATS = tuple(field.name for field in fields(MetricStats))


def render_csv(report: SweepReport) -> str:
    """RFC 4180 text; the columns are the same for every sweep save ``pass@k`` and scorers' rates, last."""
    rows = [{"run": run.name, **flatten(run.summary)} for run in report.runs]
    columns = ["run", *flatten(_EMPTY)]
    columns += sorted({key for row in rows for key in row} - set(columns))
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(map(csv_cell, columns))
    writer.writerows([csv_cell(_finite(row.get(column))) for column in columns] for row in rows)
    return out.getvalue()


def flatten(summary: RunSummary) -> dict[str, Any]:
    """The summary's figures under one name each: ``latency_stats.p90``, ``outcomes.correct`` …"""
    flat: dict[str, Any] = {}
    for field in fields(summary):
        name, value = field.name, getattr(summary, field.name)
        if name in _LEFT_OUT:
            continue
        if name == "outcomes":
            flat |= {f"outcomes.{outcome}": value.get(outcome, 0) for outcome in Outcome}
        elif name == "pass_at_k":
            flat |= {f"pass@{str(k).removeprefix('pass@')}": v for k, v in value.items()}
        elif name == "scorer_rates":
            flat |= {f"scorer_rates.{rate}": share for rate, share in value.items()}
        elif name == "accuracy_ci95":
            flat |= {"accuracy_ci95_low": value and value[0], "accuracy_ci95_high": value and value[1]}
        elif name.endswith("_stats"):
            flat |= {f"{name}.{s}": getattr(value, s) if is_dataclass(value) else None for s in _STATS}
        else:
            flat[name] = value
    return flat


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


_EMPTY = RunSummary(
    benchmark="",
    category="",
    backend="",
    model="",
    total_samples=0,
    scored_samples=0,
    correct=0,
    accuracy=None,
    errors=0,
    mean_latency_seconds=None,
    total_cost_usd=None,
)
