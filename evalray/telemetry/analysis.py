"""A node's telemetry in one call: from ticks and requests to figures per request, per run and per device.

Pure: it reads no clock and no file, so the same series and requests give the same figures again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evalray.telemetry.activity import EngineActivity, engine_activity
from evalray.telemetry.attribution import Attribution, DeviceLedger, attribute
from evalray.telemetry.figures import DeviceEvidence, RequestFigures, request_figures
from evalray.telemetry.requests import EngineUse, RequestColumns
from evalray.telemetry.steady import SteadyState, steady_state
from evalray.telemetry.windows import (
    DeviceSeries,
    DeviceWindows,
    EnergyCurve,
    counter_disagreement,
    device_windows,
)


@dataclass(slots=True, frozen=True)
class RunFigures:
    """One run's part of a node: the requests of one model on one benchmark.  ``None``: not measured."""

    energy_joules: float | None
    """Attributed to its requests."""
    idle_joules: float | None
    """Used by its engines' devices while nobody worked, between its first request and its last."""
    device_joules: float | None
    """All that those devices used in that time, by whomever."""
    peak_power_watts: float | None
    """Highest sum of a moment over the devices."""
    mfu_pct: float | None
    mbu_pct: float | None
    seconds: float
    invalid_seconds: float | None
    """Of that time, device seconds without a valid window; ``None`` without a device."""
    steady: SteadyState
    warnings: tuple[str, ...]


@dataclass(slots=True)
class NodeAnalysis:
    """Everything about one node's requests.  Indices are those of ``requests`` and ``engines``."""

    requests: RequestColumns
    engines: Sequence[EngineUse]
    figures: RequestFigures
    ledgers: list[DeviceLedger]
    activities: list[EngineActivity | None]
    evidence: Mapping[str, DeviceEvidence]
    series: Mapping[str, DeviceSeries]
    warnings: list[str]

    def engines_of(self, members: NDArray[np.intp]) -> list[int]:
        """The engines that answered ``members``, in order."""
        return sorted(set(self.requests.engine[members].tolist()))

    def energy_devices(self, engines: Iterable[int]) -> list[str]:
        """Ids of the devices whose joules are those of ``engines``, engine by engine."""
        basis = self.figures.basis
        return list(dict.fromkeys(device for engine in engines for device in basis[engine].device_ids))

    def run(self, members: NDArray[np.intp], concurrency: int) -> RunFigures | None:
        """Figures of the requests at ``members`` together; ``None`` without any."""
        if not len(members):
            return None
        used = self.engines_of(members)
        start, end = float(self.requests.sent[members].min()), float(self.requests.end[members].max())
        device_ids = sorted(self.energy_devices(used))
        curves = [self.evidence[device_id].curve for device_id in device_ids]
        ledgers = [ledger for ledger in self.ledgers if ledger.info.device_id in device_ids]
        metered = [ledger for ledger in ledgers if ledger.measured_joules is not None]
        energy = self.figures.energy_joules[members]
        mfu, mbu, warnings = self._utilization(used, start, end)
        covered = sum(float(curve.valid_seconds.between(start, end)) for curve in curves)
        return RunFigures(
            energy_joules=float(np.nansum(energy)) if np.isfinite(energy).any() else None,
            idle_joules=sum(float(x.idle.between(start, end)) for x in metered) if metered else None,
            device_joules=sum(float(x.joules.between(start, end)) for x in curves) if metered else None,
            peak_power_watts=_peak_power(
                [(self.series[device_id], self.evidence[device_id].windows) for device_id in device_ids],
                start,
                end,
            ),
            mfu_pct=mfu,
            mbu_pct=mbu,
            seconds=end - start,
            invalid_seconds=max(0.0, (end - start) * len(curves) - covered) if curves else None,
            steady=steady_state(self.requests, members, curves if metered else [], concurrency),
            warnings=tuple(warnings),
        )

    def _utilization(
        self, used: Sequence[int], start: float, end: float
    ) -> tuple[float | None, float | None, list[str]]:
        """Mean over the replicas, each over the run's time."""
        found = []
        for index in used:
            activity = self.activities[index]
            if activity is not None and (reached := activity.utilization(start, end)) is not None:
                found.append(reached)
        warnings = sorted({warning for each in found for warning in each.warnings})
        return _mean([each.mfu_pct for each in found]), _mean([each.mbu_pct for each in found]), warnings


def analyse(
    series: Mapping[str, DeviceSeries], requests: RequestColumns, engines: Sequence[EngineUse]
) -> NodeAnalysis:
    """Windows, attribution, activity and figures of one node.  ``series``: its devices by id."""
    evidence = {}
    warnings = []
    for device_id, recorded in series.items():
        windows = device_windows(recorded)
        evidence[device_id] = DeviceEvidence(recorded.info, windows, EnergyCurve.of(windows, recorded))
        if (warning := counter_disagreement(recorded, windows)) is not None:
            warnings.append(warning)
    attribution: Attribution = attribute(
        requests, engines, {device_id: seen.windows for device_id, seen in evidence.items()}
    )
    activities = [engine_activity(requests, index, engine) for index, engine in enumerate(engines)]
    figures = request_figures(requests, engines, evidence, attribution, activities)
    return NodeAnalysis(
        requests, engines, figures, attribution.ledgers, activities, evidence, series, warnings
    )


def _peak_power(
    devices: Sequence[tuple[DeviceSeries, DeviceWindows]], start: float, end: float
) -> float | None:
    """Highest power of all devices together, from one reading to the next.

    Of a device with a counter only, it is the joules of its valid windows over their seconds.
    """
    known = []
    for device, windows in devices:
        watts = device.plausible_watts
        read = np.isfinite(watts) & (device.seconds >= start) & (device.seconds <= end)
        counted = windows.valid & (windows.start >= start) & (windows.end <= end)
        if read.any():
            known.append((device.seconds[read], watts[read]))
        elif counted.any():
            first, last = windows.start[counted], windows.end[counted]
            known.append(((first + last) / 2, windows.joules[counted] / (last - first)))
    if not known:
        return None
    instants = np.unique(np.concatenate([seconds for seconds, _ in known]))
    return float(np.max(sum(np.interp(instants, seconds, power) for seconds, power in known)))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
