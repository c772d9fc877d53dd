"""A run's energy and utilisation in its summary: totals of its rows, and what only the run as a whole has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from evalray.types import RunSummary

#: Fields of the summary by the names that telemetry gives them.
_TAKEN = {
    "energy_method": "energy_method",
    "energy_scope": "energy_scope",
    "energy_reason": "energy_reason",
    "idle_joules": "idle_joules",
    "device_joules": "device_joules",
    "energy_invalid_seconds": "invalid_seconds",
    "avg_power_watts": "avg_power_watts",
    "peak_power_watts": "peak_power_watts",
    "mfu_pct": "mfu_pct",
    "mbu_pct": "mbu_pct",
    "utilization_peak": "peak",
    "utilization_reason": "utilization_reason",
    "steady_state_reached": "steady_state_reached",
    "telemetry_version": "telemetry_version",
}
_JOULES_PER_KWH = 3.6e6


def set_device_figures(
    summary: RunSummary,
    column: Callable[[str], np.ndarray],
    run: Mapping[str, Any],
    grid_gco2e_per_kwh: float | None = None,
) -> None:
    """Totals over every measured row, wrong and failed ones included, warm-up left out; then the run's own."""
    warm = column("warmup") == 1
    energy = np.where(warm, np.nan, column("energy_joules"))
    measured = np.isfinite(energy)
    if measured.any():
        total = summary.total_energy_joules = float(energy[measured].sum())
        correct = int((column("is_correct")[measured] == 1).sum())
        tokens = float(np.nansum(column("completion_tokens")[measured]))
        summary.joules_per_correct = total / correct if correct else None
        summary.tokens_per_joule = tokens / total if total > 0 and tokens else None
    flops = np.where(warm, np.nan, column("flops"))
    if np.isfinite(flops).any():
        summary.total_flops = float(np.nansum(flops))
    summary.warmup_samples_excluded = int(warm.sum())
    for name, key in _TAKEN.items():
        setattr(summary, name, run.get(key))
    if summary.avg_power_watts and summary.accuracy is not None:
        summary.accuracy_per_watt = summary.accuracy / summary.avg_power_watts
    set_emissions(summary, grid_gco2e_per_kwh)
    summary.steady_state_joules_per_token = (run.get("steady") or {}).get("joules_per_token")
    summary.warnings += [str(warning) for warning in run.get("warnings") or ()]


def set_emissions(summary: RunSummary, grid_gco2e_per_kwh: float | None) -> None:
    """What the energy of the run stands for at the grid's intensity; nothing where it was not measured."""
    summary.grid_gco2e_per_kwh = grid_gco2e_per_kwh
    if grid_gco2e_per_kwh is not None and summary.total_energy_joules is not None:
        joules = summary.total_energy_joules + (summary.idle_joules or 0.0)
        summary.gco2e = joules / _JOULES_PER_KWH * grid_gco2e_per_kwh
