"""The figures of each request: energy by attribution, and what its engine's devices did while it was in flight.

Energy is of the engine's GPUs where it has any, else of its processor packages and their memory; other kinds
stand beside it and are not added.  A figure that was not measured is NaN in the arrays and ``None`` in a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalray.telemetry.activity import EngineActivity
from evalray.telemetry.attribution import Attribution
from evalray.telemetry.meters.base import (
    TELEMETRY_VERSION,
    DeviceInfo,
    DeviceKind,
    EnergyMethod,
    EnergyScope,
)
from evalray.telemetry.requests import EngineUse, RequestColumns
from evalray.telemetry.windows import DeviceWindows, EnergyCurve
from evalray.telemetry.work import PREFILL, TokenCost, stretches

Floats = NDArray[np.float64]

#: Fewer counter updates or seconds than this make a figure coarse.
ENOUGH_UPDATES = 10
ENOUGH_SECONDS = 2.0


@dataclass(slots=True)
class DeviceEvidence:
    """One device as far as figures need it."""

    info: DeviceInfo
    windows: DeviceWindows
    curve: EnergyCurve


@dataclass(slots=True, frozen=True)
class EnergyBasis:
    """How an engine's joules came about, on every figure of them."""

    energy_method: str
    """One of :class:`EnergyMethod`, or ``mixed`` where its devices differ."""
    energy_scope: str | None
    reason: str
    """Why there is no energy, or what limits it."""
    device_ids: tuple[str, ...]
    """The devices whose joules are in ``energy_joules``."""


def energy_basis(engine: EngineUse, devices: Mapping[str, DeviceInfo]) -> EnergyBasis:
    """The basis of an engine: its GPUs, or where it has none its packages and their memory."""
    own = [devices[device_id] for device_id in engine.device_ids if device_id in devices]
    primary = [info for info in own if info.kind is DeviceKind.GPU] or own
    methods = {str(info.energy_method) for info in primary} or {str(EnergyMethod.NONE)}
    scopes: set[EnergyScope | None] = {info.energy_scope for info in primary} - {None}
    reasons = {info.reason for info in primary if info.reason}
    missing = "" if primary else engine.energy_reason or "no device of this engine has a meter"
    return EnergyBasis(
        energy_method=methods.pop() if len(methods) == 1 else "mixed",
        energy_scope="mixed" if len(scopes) > 1 else next((str(scope) for scope in scopes), None),
        reason="; ".join(sorted(reasons)) or missing,
        device_ids=tuple(info.device_id for info in primary),
    )


@dataclass(slots=True)
class RequestFigures:
    """Per request, in the order of the requests.  NaN: not measured."""

    energy_joules: Floats
    prefill_energy_joules: Floats
    decode_energy_joules: Floats
    gpu_energy_joules: Floats
    cpu_energy_joules: Floats
    dram_energy_joules: Floats
    energy_window_joules: Floats
    """All that its engine's devices used while it was in flight, others' share included: OpenJarvis's figure."""
    power_watts: Floats
    """Mean power of those devices meanwhile."""
    gpu_utilization_pct: Floats
    gpu_seconds: Floats
    mfu_pct: Floats
    mbu_pct: Floats
    prefill_flops: Floats
    decode_flops: Floats
    energy_coverage: Floats
    """Share of its time in flight that lies in valid windows; its energy is of that share alone."""
    counter_updates: Floats
    low_resolution: Floats
    """1 where it saw fewer than 10 counter updates or lasted under 2 s, so that its energy is coarse."""
    basis: list[EnergyBasis]
    """Per engine."""
    engine: NDArray[np.int32]

    def row(self, index: int) -> dict[str, Any]:
        """One request's figures by the row's names; ``None`` where not measured."""
        values = {
            name: None if np.isnan(value := getattr(self, name)[index]) else float(value) for name in _ARRAYS
        }
        basis = self.basis[self.engine[index]]
        coarse = values.pop("low_resolution")
        flops = values["prefill_flops"], values["decode_flops"]
        return values | {
            "flops": None if flops[0] is None or flops[1] is None else flops[0] + flops[1],
            "energy_low_resolution": None if coarse is None else bool(coarse),
            "energy_method": basis.energy_method,
            "energy_scope": basis.energy_scope,
            "telemetry_version": TELEMETRY_VERSION,
        }


_ARRAYS = tuple(field.name for field in fields(RequestFigures) if field.name not in ("basis", "engine"))


def request_figures(
    requests: RequestColumns,
    engines: Sequence[EngineUse],
    evidence: Mapping[str, DeviceEvidence],
    attribution: Attribution,
    activities: Sequence[EngineActivity | None],
) -> RequestFigures:
    """Everything known of each request."""
    count = len(requests)
    infos = {device_id: seen.info for device_id, seen in evidence.items()}
    basis = [energy_basis(engine, infos) for engine in engines]
    unknown = {name: np.full(count, np.nan) for name in _ARRAYS}
    out = RequestFigures(**unknown, basis=basis, engine=requests.engine)
    for index, engine in enumerate(engines):
        members = np.flatnonzero(requests.engine == index)
        if not len(members):
            continue
        _work_figures(out, requests, members, engine, activities[index])
        primary = [evidence[device_id] for device_id in basis[index].device_ids]
        if primary:
            _device_figures(out, requests, members, primary)
            _energy_figures(out, members, engine, infos, primary, attribution)
    return out


def _work_figures(
    out: RequestFigures,
    requests: RequestColumns,
    members: NDArray[np.intp],
    engine: EngineUse,
    activity: EngineActivity | None,
) -> None:
    if engine.shape is not None:
        work = stretches(requests, members, TokenCost.of(engine.shape))
        prefill, flops, count = work.phase == PREFILL, work.flops, len(requests)
        for name, phase in (("prefill_flops", prefill), ("decode_flops", ~prefill)):
            getattr(out, name)[members] = np.bincount(work.request[phase], flops[phase], count)[members]
    if activity is not None:
        mfu, mbu = activity.percent(requests.sent[members], requests.end[members])
        out.mfu_pct[members], out.mbu_pct[members] = mfu, mbu


def _device_figures(
    out: RequestFigures,
    requests: RequestColumns,
    members: NDArray[np.intp],
    devices: Sequence[DeviceEvidence],
) -> None:
    """What the devices did between ``sent`` and ``end``."""
    start, end = requests.sent[members], requests.end[members]
    flight = end - start
    joules, power, covered = np.zeros(len(members)), np.zeros(len(members)), np.zeros(len(members))
    busy, watched = np.zeros(len(members)), np.zeros(len(members))
    updates = np.full(len(members), np.inf)
    for seen in devices:
        used, known = (
            seen.curve.joules.between(start, end),
            seen.curve.valid_seconds.between(start, end),
        )
        joules += used
        power += _ratio(used, known)
        covered += known
        busy += seen.curve.utilization.between(start, end)
        watched += seen.curve.utilization_seconds.between(start, end)
        borders = np.append(seen.windows.start, seen.windows.end[-1:])
        inside = np.searchsorted(borders, end, "right") - np.searchsorted(borders, start, "left")
        updates = np.minimum(updates, inside)
    out.energy_coverage[members] = _ratio(covered, flight * len(devices))
    measured = covered > 0
    out.energy_window_joules[members] = np.where(measured, joules, np.nan)
    out.power_watts[members] = power
    out.gpu_utilization_pct[members] = _ratio(busy, watched)
    out.counter_updates[members] = np.where(measured, updates, np.nan)
    coarse = (updates < ENOUGH_UPDATES) | (flight < ENOUGH_SECONDS)
    out.low_resolution[members] = np.where(measured, coarse, np.nan)


def _energy_figures(
    out: RequestFigures,
    members: NDArray[np.intp],
    engine: EngineUse,
    infos: Mapping[str, DeviceInfo],
    primary: Sequence[DeviceEvidence],
    attribution: Attribution,
) -> None:
    shares = attribution.shares
    measured = out.energy_coverage[members] > 0
    kinds = {seen.info.kind for seen in primary if seen.info.has_energy}
    if kinds:
        prefill = sum(shares.prefill_joules[kind][members] for kind in kinds)
        decode = sum(shares.decode_joules[kind][members] for kind in kinds)
        out.prefill_energy_joules[members] = np.where(measured, prefill, np.nan)
        out.decode_energy_joules[members] = np.where(measured, decode, np.nan)
        out.energy_joules[members] = np.where(measured, prefill + decode, np.nan)
    own = {infos[device_id].kind for device_id in engine.device_ids if device_id in infos}
    metered = {
        info.kind for info in infos.values() if info.has_energy and info.device_id in engine.device_ids
    }
    for kind, name in (
        (DeviceKind.GPU, "gpu_energy_joules"),
        (DeviceKind.CPU, "cpu_energy_joules"),
        (DeviceKind.DRAM, "dram_energy_joules"),
    ):
        if kind in metered:
            total = shares.prefill_joules[kind][members] + shares.decode_joules[kind][members]
            getattr(out, name)[members] = np.where(measured, total, np.nan)
    if DeviceKind.GPU in own:
        out.gpu_seconds[members] = shares.gpu_seconds[members]


def _ratio(amount: Floats, of: Floats) -> Floats:
    """``amount / of``, NaN where there is nothing to divide by."""
    unknown: Floats = np.full(len(amount), np.nan)
    return np.divide(amount, of, out=unknown, where=of > 0)
