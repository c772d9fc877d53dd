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
    from evalray.store import RunEntry
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

    Raises :class:`ConfigError` for a path that is not there, for a ``plot`` that is no ``.svg`` or ``.png`` or of
    several runs, and :class:`StoreError` where there is no telemetry, with the reason, or it cannot be read.
    """
    if not path.exists():
        raise ConfigError([Problem(str(path), "", "no such file or directory")])
    from evalray.reports import device_energy, measuring_notes, read_run_figures, run_energy
    from evalray.store import why_no_run

    folders = _finished_runs(path.absolute())
    unmeasured = _why_unmeasured(path.absolute(), folders)
    if not folders:
        raise StoreError(
            "; ".join(f"{path}: no telemetry: {why}" for why in unmeasured or [why_no_run(path)])
        )
    if plot is not None:
        _check_plot(plot, path, folders)
    runs = {}
    for folder in folders:
        try:
            runs[folder.name] = read_run_figures(folder)
        except StoreError as error:
            unmeasured.append(str(error))
    if not runs:
        raise StoreError("; ".join(unmeasured))
    tables = [table for table in (run_energy(runs), device_energy(runs)) if table.rows]
    report = TelemetryReport(runs, tables, [*measuring_notes(runs), *unmeasured])
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


def _why_unmeasured(path: Path, measured: list[Path]) -> list[str]:
    """Why the other runs at ``path`` have no figures, each reason once with the runs it is of."""
    from evalray.store import scan_runs

    alone = (path / "run.json").is_file()
    entries, damaged = scan_runs(path.parent if alone else path)
    names = {folder.name for folder in measured}
    whose: dict[str, list[str]] = {}
    for entry in entries:
        if entry.name not in names and (not alone or entry.directory == path):
            whose.setdefault(_why_no_figures(entry), []).append(entry.name)
    found = [f"{', '.join(names)}: {why}" for why, names in whose.items()]
    return found + [problem for name, problem in damaged.items() if not alone or name == path.name]


def _why_no_figures(entry: RunEntry) -> str:
    from evalray.store import read_summary
    from evalray.suite.engine_choice import is_over_network

    if entry.manifest.info.get("imported"):
        try:
            has_energy = read_summary(entry.summary_path).total_energy_joules is not None
        except StoreError:
            has_energy = False
        if not has_energy:
            return "imported: EvalRay's meters did not see it, and its rows bring no energy figures"
        return (
            "imported: EvalRay's meters did not see it; the energy it brings is in report.html (Speed and cost), "
            "in `evalray compare`, and row by row in its .jsonl"
        )
    if not entry.config.telemetry:
        return "[run] telemetry = false or --no-telemetry turned it off"
    if is_over_network(entry.manifest.engine, {}):
        return f"only local engines are measured, and {entry.manifest.engine} passes requests on to a server"
    if not entry.summary_path.exists():
        return "not finished: the run's command continues it"
    return "nothing was generated while its devices were measured"


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
