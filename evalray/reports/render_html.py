"""``report.html``: one file that opens anywhere, without scripts or anything loaded from outside.

MLflow's page renders this file inside itself, so one unescaped answer of a model could script a
user's tracking server.  The template engine escapes every value, the page forbids scripts by its
content security policy, and nothing computed here goes into a style but numbers.  Plots are
images (``data:`` addresses), in which a browser runs nothing.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from evalray.reports import table
from evalray.reports.collect import ReportedRun, SweepReport
from evalray.reports.escape import plain
from evalray.reports.power_files import PowerFiles, plot_uri
from evalray.types import Outcome, RunSummary

#: All plots of a page together, so that it opens at once whatever the number of runs.
MAX_PLOT_BYTES = 3_000_000
#: With more plots than this they wait for a click.
_OPEN_PLOTS = 4


def render_html(report: SweepReport) -> str:
    """The whole report as one self-contained HTML page."""
    environment = Environment(
        loader=PackageLoader("evalray.reports", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters["clean"] = lambda text, limit=0: plain(str(text), limit)
    plots = _plots(report)
    return environment.get_template("report.html.jinja").render(
        report=report,
        facts=table.facts(report),
        warnings=table.warnings(report),
        matrix=table.matrix(report),
        outcome_names=[str(outcome) for outcome in Outcome],
        sections=[_section(name, report, plots) for name in report.benchmarks],
        plots_open=len(plots) <= _OPEN_PLOTS,
    )


def _plots(report: SweepReport) -> dict[str, str]:
    """Each run's plot as an address, as long as there is room; the rest is named by its file."""
    plots: dict[str, str] = {}
    room = MAX_PLOT_BYTES
    for run in report.runs:
        uri = plot_uri(report.directory / run.name, room * 3 // 4)
        if uri is not None:
            plots[run.name] = uri
            room -= len(uri)
    return plots


def _section(benchmark: str, report: SweepReport, plots: dict[str, str]) -> dict[str, Any]:
    runs = report.of_benchmark(benchmark)
    seen = {name for run in runs for name, number in run.summary.outcomes.items() if number}
    return {
        "benchmark": benchmark,
        "runs": [_run(run) | _plot(report.directory / run.name, plots.get(run.name)) for run in runs],
        "outcome_names": [str(outcome) for outcome in Outcome if outcome in seen],
        "leaderboard": table.leaderboard(runs),
        "outcomes": table.outcomes(runs),
        "performance": table.performance(runs),
        "measuring": table.measuring(runs),
    }


def _run(run: ReportedRun) -> dict[str, Any]:
    subjects = table.subjects(run.summary) if table.has_subjects(run.summary) else None
    return {
        "summary": run.summary,
        "name": run.name,
        "label": run.label,
        "accuracy": table.accuracy_text(run.summary),
        "scored": table.scored_text(run.summary),
        "bar": _bar(run.summary),
        "shares": _shares(run.summary),
        "subjects": subjects,
        "hidden_subjects": len(run.summary.per_subject) - len(subjects.rows) if subjects else 0,
        "excerpts": run.excerpts,
    }


def _plot(run_directory: Path, uri: str | None) -> dict[str, Any]:
    return {"plot": uri, "plot_left_out": uri is None and bool(PowerFiles(run_directory).present())}


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
