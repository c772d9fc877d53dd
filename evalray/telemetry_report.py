"""What ``evalray telemetry`` shows: the figures of finished runs, and the plots of their power, drawn where missing.

Reads run directories and writes nothing there but missing plots and their data.  A plot that cannot be drawn
is said, and takes nothing from the figures.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalray.errors import ConfigError, EvalRayError, Problem, StoreError

if TYPE_CHECKING:
    from evalray.reports import Table
    from evalray.telemetry import PowerTimeline


@dataclass(slots=True)
class TelemetryReport:
    """Finished runs by name: what was measured, and where their plots are."""

    runs: dict[str, dict[str, Any]]
    tables: list[Table]
    notes: list[str]
    """Why figures or plots are missing."""
    plots: dict[str, dict[str, str]] = field(default_factory=dict)
    """Per run the files that are there: ``parquet`` (the data), ``svg``, ``png``."""
    written: Path | None = None
    """The plot that was asked for by name."""

    def plot_lines(self) -> list[str]:
        """Where the plots are, in a line each."""
        drawn = [files.get("svg") or files.get("png") for files in self.plots.values()]
        lines = [f"power over time: {file}" for file in drawn if file]
        return lines + ([f"written: {self.written}"] if self.written else [])


def telemetry_report(path: Path, plot: Path | None = None) -> TelemetryReport:
    """The finished runs at ``path``, a run's folder or a sweep's; ``plot`` is where to draw the one run's power.

    Raises :class:`ConfigError` for a ``plot`` that is no ``.svg`` or ``.png`` or of several runs, and
    :class:`StoreError` where there is no telemetry or it cannot be read.
    """
    from evalray.reports import device_energy, measuring_notes, read_run_figures, run_energy

    folders = _finished_runs(path.absolute())
    if not folders:
        raise StoreError(
            f"{path}: no telemetry; only local engines are measured, and [run] telemetry = false turns it off"
        )
    if plot is not None:
        _check_plot(plot, path, folders)
    runs = {folder.name: read_run_figures(folder) for folder in folders}
    tables = [table for table in (run_energy(runs), device_energy(runs)) if table.rows]
    report = TelemetryReport(runs, tables, measuring_notes(runs))
    for folder in folders:
        _add_plots(report, folder)
    if plot is not None:
        _draw(folders[0], plot)
        report.written = plot.absolute()
    return report


def _finished_runs(path: Path) -> list[Path]:
    def has_figures(folder: Path) -> bool:
        return (folder / "telemetry" / "run.json").is_file()

    return [path] if has_figures(path) else sorted(filter(has_figures, path.glob("*")))


def _check_plot(plot: Path, path: Path, folders: list[Path]) -> None:
    from evalray.reports import plot_format

    try:
        plot_format(plot)
    except ValueError as error:
        raise ConfigError([Problem("--plot", "", f"{plot}: {error}")]) from None
    if len(folders) > 1:
        hint = f"name one of them, as in: evalray telemetry {folders[0]} --plot {plot}"
        raise ConfigError([Problem("--plot", "", f"{path} holds {len(folders)} runs", hint)])


def _add_plots(report: TelemetryReport, folder: Path) -> None:
    """Draw what is missing, and name what is there."""
    from evalray.reports import PowerFiles, draw_missing, write_power

    files = PowerFiles(folder)
    try:
        if not files.timeline.is_file():
            write_power(folder, _timeline(folder))
        elif len(files.present()) < len(files.all()):
            draw_missing(folder, _timeline(folder))
    except Exception as error:  # noqa: BLE001 -- the figures are worth showing without a picture
        why = str(error) if isinstance(error, EvalRayError) else f"{type(error).__name__}: {error}"
        report.notes.append(f"{folder.name}: power is not plotted: {why}"[:500])
    report.plots[folder.name] = {file.suffix.removeprefix("."): str(file) for file in files.present()}


def _timeline(folder: Path) -> PowerTimeline:
    """From the run's own file, else from what the sweep recorded.  Raises :class:`StoreError`."""
    from evalray.reports import PowerFiles, read_timeline

    file = PowerFiles(folder).timeline
    if file.is_file():
        return read_timeline(file)
    from evalray.runtime.telemetry_figures import timeline_of_run

    found = timeline_of_run(folder.parent, folder.name)
    if found is None:
        raise StoreError(f"{folder.parent / 'telemetry'} has no readings of its engines' devices")
    return found


def _draw(folder: Path, plot: Path) -> None:
    from evalray.reports import plot_title, write_plot

    try:
        write_plot(plot, _timeline(folder), plot_title(folder))
    except OSError as error:
        raise StoreError(f"{plot} cannot be written: {error.strerror or error}; name another file") from error
