"""``evalray telemetry``: what the devices used in a finished run or sweep."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated, Any

import typer

from evalray.cli.report import Report


def telemetry(
    ctx: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A sweep's folder or a run's.")],
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> int:
    """Show energy, MFU and MBU of finished runs, and where each device's joules went."""
    from evalray.cli.tables import names_table
    from evalray.errors import StoreError

    report: Report = ctx.obj
    found = {file.parent.parent.name: _read(file) for file in _files(path)}
    if not found:
        raise StoreError(
            f"{path}: no telemetry; only local engines are measured, and [run] telemetry = false turns it off"
        )
    report.fields["runs"] = found
    head = ("run", "energy", "idle", "peak power", "MFU", "MBU", "J/token, full batch", "method")
    report.show(names_table(head, (_run_cells(name, run) for name, run in found.items())))
    devices = {(d["device_id"], name): d for name, run in found.items() for d in run.get("devices") or ()}
    if devices:
        device_head = ("device", "run", "measured", "attributed", "idle", "not valid", "why or how")
        rows = (_device_cells(name, device) for (_, name), device in devices.items())
        report.show(names_table(device_head, rows))
    for reason in dict.fromkeys(run.get(key) for run in found.values() for key in _REASONS):
        if reason:
            report.say(str(reason))
    return 0


_REASONS = ("energy_reason", "utilization_reason", "peak")


def _files(path: Path) -> list[Path]:
    own = path / "telemetry" / "run.json"
    return [own] if own.is_file() else sorted(path.glob("*/telemetry/run.json"))


def _read(file: Path) -> dict[str, Any]:
    from evalray.errors import StoreError

    try:
        value = jsonlib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StoreError(f"{file} cannot be read: {error}; the run's command works it out again") from error
    if not isinstance(value, dict):
        raise StoreError(f"{file} holds no object; the run's command works it out again")
    return value


def _run_cells(name: str, run: dict[str, Any]) -> tuple[str, ...]:
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


def _device_cells(name: str, device: dict[str, Any]) -> tuple[str, ...]:
    lost = device.get("invalid_seconds") or {}
    return (
        f"{device.get('name')} ({device.get('device_id')})",
        name,
        _number(device.get("measured_joules"), "J"),
        _number(device.get("attributed_joules"), "J"),
        _number(device.get("idle_joules"), "J"),
        ", ".join(f"{cause} {seconds:.1f} s" for cause, seconds in lost.items()) or "0 s",
        str(device.get("reason") or device.get("energy_method") or ""),
    )


def _number(value: Any, unit: str) -> str:
    return f"{value:.4g} {unit}" if isinstance(value, int | float) else "–"
