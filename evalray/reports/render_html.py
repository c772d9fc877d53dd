"""``report.html``: one file that opens anywhere, without scripts or anything loaded from outside.

MLflow's page renders this file inside itself, so one unescaped answer of a model could script a
user's tracking server.  The template engine escapes every value, the page forbids scripts by its
content security policy, and nothing computed here goes into a style but numbers.
"""

from __future__ import annotations

import math
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from evalray.reports import table
from evalray.reports.collect import ReportedRun, SweepReport
from evalray.reports.escape import plain
from evalray.types import Outcome, RunSummary


def render_html(report: SweepReport) -> str:
    """The whole report as one self-contained HTML page."""
    environment = Environment(
        loader=PackageLoader("evalray.reports", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters["clean"] = lambda text, limit=0: plain(str(text), limit)
    return environment.get_template("report.html.jinja").render(
        report=report,
        facts=table.facts(report),
        warnings=table.warnings(report),
        matrix=table.matrix(report),
        outcome_names=[str(outcome) for outcome in Outcome],
        sections=[_section(name, report.of_benchmark(name)) for name in report.benchmarks],
    )


def _section(benchmark: str, runs: list[ReportedRun]) -> dict[str, Any]:
    seen = {name for run in runs for name, number in run.summary.outcomes.items() if number}
    return {
        "benchmark": benchmark,
        "runs": [_run(run) for run in runs],
        "outcome_names": [str(outcome) for outcome in Outcome if outcome in seen],
        "leaderboard": table.leaderboard(runs),
        "outcomes": table.outcomes(runs),
        "performance": table.performance(runs),
    }


def _run(run: ReportedRun) -> dict[str, Any]:
    subjects = table.subjects(run.summary) if table.has_subjects(run.summary) else None
    return {
        "summary": run.summary,
        "label": run.label,
        "accuracy": table.accuracy_text(run.summary),
        "scored": table.scored_text(run.summary),
        "bar": _bar(run.summary),
        "shares": _shares(run.summary),
        "subjects": subjects,
        "hidden_subjects": len(run.summary.per_subject) - len(subjects.rows) if subjects else 0,
        "excerpts": run.excerpts,
    }


def _bar(summary: RunSummary) -> dict[str, float | None] | None:
    """Positions on the scale of 0 to 100 %, or nothing where there is no accuracy."""
    if summary.accuracy is None or not math.isfinite(summary.accuracy):
        return None
    bar: dict[str, float | None] = {"accuracy": _position(summary.accuracy), "low": None, "width": None}
    if summary.accuracy_ci95 is not None and all(map(math.isfinite, summary.accuracy_ci95)):
        low, high = map(_position, summary.accuracy_ci95)
        bar |= {"low": low, "width": round(high - low, 2)}
    return bar


def _position(fraction: float) -> float:
    return round(min(max(fraction, 0.0), 1.0) * 100, 2)


def _shares(summary: RunSummary) -> list[tuple[str, float]]:
    """Each outcome's share of all samples, in percent, in the order of the vocabulary."""
    total = sum(summary.outcomes.get(outcome, 0) for outcome in Outcome)
    counts = ((str(outcome), summary.outcomes.get(outcome, 0)) for outcome in Outcome)
    return [(name, round(number / total * 100, 3)) for name, number in counts if number]
