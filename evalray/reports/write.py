"""Write a sweep's reports beside its results, each in one step, so that a reader never sees half a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from evalray.files import replacing
from evalray.reports.collect import SweepReport, collect
from evalray.reports.render_csv import render_csv
from evalray.reports.render_html import render_html
from evalray.reports.render_markdown import render_markdown
from evalray.store import store_errors

_RENDERERS: dict[str, Callable[[SweepReport], str]] = {
    "report.md": render_markdown,
    "report.html": render_html,
    "report.csv": render_csv,
}


def write_reports(sweep_dir: Path) -> list[Path]:
    """Write ``report.md``, ``report.html`` and ``report.csv`` from what ``sweep_dir`` holds now.

    Returns their paths.  Raises :class:`~evalray.errors.StoreError` where they cannot be written,
    :class:`~evalray.errors.DiskFullError` for want of room.
    """
    report = collect(sweep_dir)
    return [_replace(sweep_dir / name, render(report)) for name, render in _RENDERERS.items()]


def _replace(path: Path, text: str) -> Path:
    with store_errors(path), replacing(path) as beside:
        beside.write_text(text, encoding="utf-8", errors="replace", newline="")
    return path
