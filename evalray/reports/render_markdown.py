"""``report.md``: the sweep as GitHub-flavoured Markdown."""

from __future__ import annotations

from evalray.reports import table
from evalray.reports.collect import ReportedRun, SweepReport
from evalray.reports.escape import markdown
from evalray.wording import counted


def render_markdown(report: SweepReport) -> str:
    """The whole report as one Markdown document."""
    parts = [f"# {markdown(report.name, 200)}"]
    if report.description:
        parts.append(markdown(report.description, 1000))
    parts.append("\n".join(f"- {name}: {markdown(value, 500)}" for name, value in table.facts(report)))
    if lines := table.warnings(report):
        parts.append("## Warnings\n\n" + "\n".join(f"- {markdown(line, 500)}" for line in lines))
    if len(report.runs) > 1:
        parts.append(
            "## Accuracy\n\nWith the 95 % interval; n = scored/planned.\n\n"
            + render_table(table.matrix(report))
        )
    for benchmark in report.benchmarks:
        parts.append(_benchmark(benchmark, report.of_benchmark(benchmark)))
    return "\n\n".join(part for part in parts if part) + "\n"


def render_table(content: table.Table, limit: int = 120) -> str:
    """A pipe table; figures are aligned right, each cell holds at most ``limit`` characters."""
    head = "| " + " | ".join(markdown(cell, limit) for cell in content.head) + " |"
    rule = "|" + "|".join(" --- " if i < content.labels else " ---: " for i in range(len(content.head))) + "|"
    rows = ("| " + " | ".join(markdown(cell, limit) for cell in row) + " |" for row in content.rows)
    return "\n".join((head, rule, *rows))


def _benchmark(benchmark: str, runs: list[ReportedRun]) -> str:
    parts = [
        f"## {markdown(benchmark, 200)}",
        render_table(table.leaderboard(runs)),
        "### Outcomes\n\n" + render_table(table.outcomes(runs)),
        "### Speed and cost\n\n" + render_table(table.performance(runs)),
    ]
    if notes := table.measuring(runs):
        parts.append("\n".join(f"- {markdown(note, 500)}" for note in notes))
    for run in runs:
        if table.has_subjects(run.summary):
            subjects = table.subjects(run.summary)
            parts.append(f"### Subjects: {markdown(run.label, 200)}\n\n{render_table(subjects)}")
            if hidden := len(run.summary.per_subject) - len(subjects.rows):
                parts.append(
                    f"{counted(hidden, 'more subject is', 'more subjects are')} in the run's summary file."
                )
    return "\n\n".join(parts)
