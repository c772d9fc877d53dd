"""Reports of a sweep (``report.md``, ``report.html``, ``report.csv``), and the plots of its runs' power."""

from evalray.reports.collect import Excerpt, ReportedRun, SweepReport, collect, tag_legend
from evalray.reports.power_files import (
    PowerFiles,
    draw_missing,
    plot_format,
    plot_title,
    plot_uri,
    read_timeline,
    write_plot,
    write_power,
    write_timeline,
)
from evalray.reports.render_csv import render_csv
from evalray.reports.render_html import render_html
from evalray.reports.render_markdown import render_markdown
from evalray.reports.table import Table
from evalray.reports.telemetry_tables import (
    device_energy,
    measuring_notes,
    read_run_figures,
    run_energy,
)
from evalray.reports.write import write_reports

__all__ = [
    "Excerpt",
    "PowerFiles",
    "ReportedRun",
    "SweepReport",
    "Table",
    "collect",
    "device_energy",
    "draw_missing",
    "measuring_notes",
    "plot_format",
    "plot_title",
    "plot_uri",
    "read_run_figures",
    "read_timeline",
    "render_csv",
    "render_html",
    "render_markdown",
    "run_energy",
    "tag_legend",
    "write_plot",
    "write_power",
    "write_reports",
    "write_timeline",
]
