"""Reports of a sweep: ``report.md``, ``report.html`` and ``report.csv``, from its summaries and rows."""

from evalray.reports.collect import Excerpt, ReportedRun, SweepReport, collect
from evalray.reports.render_csv import render_csv
from evalray.reports.render_html import render_html
from evalray.reports.render_markdown import render_markdown
from evalray.reports.write import write_reports

__all__ = [
    "Excerpt",
    "ReportedRun",
    "SweepReport",
    "collect",
    "render_csv",
    "render_html",
    "render_markdown",
    "write_reports",
]
