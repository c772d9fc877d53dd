"""What telemetry worked out of finished runs, as tables: energy and utilisation per run, joules per device."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalray.errors import StoreError
from evalray.reports.format import DASH
from evalray.reports.table import Table
from evalray.store import read_summary

#: What is said of a run below the tables, by its figures' keys.
_REASONS = {"energy_reason": "energy: ", "utilization_reason": "MFU and MBU: ", "peak": "MFU and MBU are of "}

#: What :func:`read_run_figures` found, by the run's name.
Figures = Mapping[str, Mapping[str, Any]]


def read_run_figures(run_directory: Path) -> dict[str, Any]:
    """A run's own figures, and ``gco2e`` of its summary.  Raises :class:`StoreError` where they cannot be read."""
    file = run_directory / "telemetry" / "run.json"
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
        _check(value)
    except (OSError, ValueError, RecursionError) as error:
        remedy = "remove it, and the run's command works it out again"
        raise StoreError(f"{file} cannot be read: {error}; {remedy}") from error
    return {**value, "gco2e": _emissions(run_directory)}


def _check(figures: Any) -> None:
    """Raises ``ValueError`` where the tables could not be made of them."""
    if not isinstance(figures, dict):
        raise ValueError("it holds no object")
    if not isinstance(figures.get("steady") or {}, dict):
        raise ValueError("steady is no object")
    devices = figures.get("devices") or []
    if not isinstance(devices, list):
        raise ValueError("devices is no list")
    for device in devices:
        if not isinstance(device, dict) or not isinstance(device.get("device_id"), str):
            raise ValueError("a device has no device_id")
        lost = device.get("invalid_seconds") or {}
        if not isinstance(lost, dict) or not all(isinstance(each, int | float) for each in lost.values()):
            raise ValueError("invalid_seconds are no seconds by cause")


def _emissions(run_directory: Path) -> float | None:
    """The summary knows the grid, the figures of the devices do not."""
    try:
        return read_summary(run_directory.with_name(f"{run_directory.name}.summary.json")).gco2e
    except StoreError:
        return None


def run_energy(runs: Figures) -> Table:
    """One row a run."""
    head = ("run", "energy", "idle", "peak power", "MFU", "MBU", "J/token, full batch", "method")
    rows = [_run_cells(name, run) for name, run in runs.items()]
    if all(run.get("gco2e") is None for run in runs.values()):
        return Table(head, tuple(rows))
    emissions = [_number(run.get("gco2e"), "g") for run in runs.values()]
    return Table((*head, "CO2e"), tuple((*row, cell) for row, cell in zip(rows, emissions, strict=True)))


def device_energy(runs: Figures) -> Table:
    """One row for each device that a run's engines computed on; none where no device is known."""
    head = ("device", "run", "measured", "samples", "judges", "idle", "not valid", "why or how")
    devices = {
        (d["device_id"], name): d
        for name, run in runs.items()
        for d in run.get("devices") or ()
        if d.get("engines") != []
    }
    return Table(head, tuple(_device_cells(name, device) for (_, name), device in devices.items()), 2)


def measuring_notes(runs: Figures) -> list[str]:
    """Why figures are missing and what peaks they are of, each once, with the runs it is of if not of all."""
    whose: dict[str, list[str]] = {}
    for key, what in _REASONS.items():
        for name, run in runs.items():
            if run.get(key):
                whose.setdefault(f"{what}{run[key]}", []).append(name)
    provisional = [name for name, run in runs.items() if run.get("provisional") is True]
    notes = [
        note if len(names) == len(runs) else f"{', '.join(names)}: {note}" for note, names in whose.items()
    ]
    if provisional:
        notes.append(
            f"{', '.join(provisional)}: provisional, others on its devices were still at work when the sweep ended; "
            "the same command works it out again"
        )
    return notes


def _run_cells(name: str, run: Mapping[str, Any]) -> tuple[str, ...]:
    steady = (run.get("steady") or {}).get("joules_per_token")
    return (
        name,
        _number(run.get("energy_joules"), "J"),
        _number(run.get("idle_joules"), "J"),
        _number(run.get("peak_power_watts"), "W"),
        _number(run.get("mfu_pct"), "%"),
        _number(run.get("mbu_pct"), "%"),
        _number(steady, "J"),
        str(run.get("energy_method") or "none"),
    )


def _device_cells(name: str, device: Mapping[str, Any]) -> tuple[str, ...]:
    lost = device.get("invalid_seconds") or {}
    method = str(device.get("energy_method") or "").replace("none", "")
    return (
        f"{device.get('name')} ({device.get('device_id')})",
        name,
        _number(device.get("measured_joules"), "J"),
        _number(device.get("attributed_joules"), "J"),
        _number(device.get("judge_joules"), "J"),
        _number(device.get("idle_joules"), "J"),
        ", ".join(f"{cause} {seconds:.1f} s" for cause, seconds in lost.items()) or "0 s",
        ": ".join(filter(None, (method, str(device.get("reason") or "")))),
    )


def _number(value: Any, unit: str) -> str:
    if not isinstance(value, int | float):
        return DASH
    # Four digits that say something, and never a power of ten.
    return f"{value:,.0f} {unit}" if abs(value) >= 1_000 else f"{value:.4g} {unit}"
